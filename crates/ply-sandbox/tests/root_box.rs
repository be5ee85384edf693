//! Boxes as root makes them.

mod common;
use common::World;
use ply_sandbox::*;

#[test]
fn root_hello() {
    let world = World::new();
    println!("{}", world.sh("cat /proc/1/cmdline /proc/1/comm; ls -l /proc/self/fd /proc/1/; cat /proc/1/status | grep -i dump"));
    let (stdio, out) = common::pipes();
    let mut i = world.launch(&world.spec(&["sleep","1000"]), stdio).unwrap();
    println!("{:?}", i.target());
    let (stdio, [o,e]) = common::pipes();
    let t = std::time::Instant::now();
    let mut x = exec(i.target(), &["sh".into(), "-c".into(), "id; ps; cat /proc/self/status | grep -E 'Cap|NoNew|Secc|Groups'; cat /proc/self/cgroup; ls -l /proc/self/fd; exit 7".into()], stdio).unwrap();
    println!("{:?} {:?}", x.wait(), t.elapsed());
    println!("{} {}", common::read_all(o), common::read_all(e));
    println!("{}", std::fs::read_to_string(format!("/proc/{}/smaps_rollup", i.init().pid)).unwrap());
    println!("{}", std::fs::read_to_string(format!("/proc/{}/maps", i.init().pid)).unwrap());
    println!("{:?}", i.tcp_sockets(300).map(|s| s.len()));
    i.signal(15).unwrap();
    println!("{:?}", i.wait());
    drop(i);
    println!("{:?}", std::fs::read_dir("/sys/fs/cgroup/pids/ply-test").unwrap().map(|x| x.unwrap().file_name()).collect::<Vec<_>>());
}
