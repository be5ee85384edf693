//! Boxes as an ordinary user makes them.

mod common;
use common::{World, as_user};
use ply_sandbox::*;

#[test]
fn rootless_hello() {
    if !as_user("rootless_hello") { return; }
    let world = World::new();
    println!("{:?}", world.host);
    println!("{}", world.sh("id; cat /proc/self/uid_map; cat /proc/self/status | grep -E 'Cap|NoNew|Secc|Groups'; mount; touch /x; echo > /etc/motd; ls -l / /dev; ps"));
    for _ in 0..5 {
        let t = std::time::Instant::now();
        world.sh("true");
        println!("{:?}", t.elapsed());
    }
    let (stdio, _out) = common::pipes();
    let mut i = world.launch(&world.spec(&["sleep","1000"]), stdio).unwrap();
    let (stdio, [o,e]) = common::pipes();
    let t = std::time::Instant::now();
    let mut x = exec(i.target(), &["sh".into(), "-c".into(), "id; ps; cat /proc/self/status | grep -E 'Cap|NoNew|Secc|Groups'; cat /proc/self/cgroup; ls -l /proc/self/fd /proc/1/exe; exit 7".into()], stdio).unwrap();
    println!("{:?} {:?}", x.wait(), t.elapsed());
    println!("{} {}", common::read_all(o), common::read_all(e));
    println!("{:?}", i.tcp_sockets(300).map(|s| s.len()));
    i.signal(15).unwrap();
    println!("{:?}", i.wait());
}
