//! Building: the same bytes anywhere, what ships and what is refused, and an image that runs elsewhere.

use crate::harness::{BOTH, Who, World, registry};
use crate::inside::SHELL;
use std::process::Command;

fn digest(done: &crate::harness::Done) -> String {
    done.out.split_whitespace().find(|w| w.starts_with("sha256:")).expect("a digest").to_owned()
}

#[test]
fn the_same_folder_gives_the_same_bytes_anywhere() {
    let files: Vec<(String, Vec<u8>)> = (0..40)
        .map(|i| (format!("lib/{}/file-{i}.txt", i % 7), vec![(i * 31 % 251) as u8; 1000 * i + i]))
        .collect();
    let make = |world: &World, files: &[(String, Vec<u8>)]| {
        world.write("app/ply.toml", SHELL);
        for (path, contents) in files {
            world.write(format!("app/{path}"), contents);
        }
        std::os::unix::fs::symlink("lib/0", world.path("work/app/link")).unwrap();
    };
    let one = World::new(Who::Root);
    make(&one, &files);
    let first = digest(&one.run(["build", "app", "-o", "app.img"]).expect(0));

    let two = World::new(Who::User);
    let reversed: Vec<_> = files.iter().rev().cloned().collect();
    make(&two, &reversed);
    let mut command = two.command("sh");
    command.env("LANG", "de_DE.UTF-8").env("TZ", "Asia/Tokyo").args([
        "-c",
        "umask 077; find app -exec touch -d 2001-02-03 {} +; find app -type f -exec chmod 600 {} +; exec taskset 1 \"$0\" build app -o app.img",
    ]);
    command.arg(crate::harness::ply_binary());
    let second = digest(&two.finish(command).expect(0));
    assert_eq!(first, second);

    // And the kernel mounts it.
    let at = one.mkdir("mnt");
    let image = one.path("work/app.img");
    let status = Command::new("mount")
        .args(["-t", "squashfs", "-o", "loop,ro"])
        .arg(&image)
        .arg(&at)
        .status()
        .unwrap();
    assert!(status.success());
    let seen = std::fs::read(at.join("opt/sh/lib/3/file-3.txt")).unwrap();
    Command::new("umount").arg(&at).status().unwrap();
    assert_eq!(seen, files[3].1);
}

#[test]
fn an_unchanged_folder_is_not_built_again() {
    for who in BOTH {
        let world = World::new(who);
        world.write("app/ply.toml", SHELL);
        world.write("app/file", "one");
        let first = world.run(["build", "app"]).expect(0);
        let again = world.run(["build", "app"]).expect(0);
        assert!(again.err.contains("nothing changed"), "{who:?}\n{}", again.err);
        assert_eq!(digest(&first), digest(&again));
        // The same size and the same time, other content.
        let old = std::fs::metadata(world.path("work/app/file")).unwrap().modified().unwrap();
        let path = world.write("app/file", "two");
        std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        let changed = world.run(["build", "app"]).expect(0);
        assert_ne!(digest(&first), digest(&changed), "{who:?}");
    }
}

#[test]
fn credentials_refuse_the_build_unless_allowed() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", SHELL);
    for name in [".env", "certs/server.key", ".npmrc", "deep/.aws/credentials"] {
        world.write(format!("app/{name}"), "secret");
    }
    let refused = world.run(["build", "app"]).expect(1);
    for name in [".env", "certs/server.key", ".npmrc", ".aws"] {
        assert!(refused.err.contains(name), "{name}\n{}", refused.err);
    }
    assert!(!world.path("work/app/sh-1.0.0-linux-x64.img").exists());
    world.run(["build", "app", "--allow-secrets"]).expect(0);
}

#[test]
fn an_app_runs_elsewhere_with_only_the_image_and_the_folder() {
    for who in BOTH {
        let here = World::new(who);
        here.write("app/ply.toml", SHELL);
        here.write("app/hello", "from the image");
        here.run(["build", "app", "-o", "app.img"]).expect(0);
        let there = World::new(who);
        there.copy(&here.path("work/app.img"), "app.img");
        let done = there.run(["run", "app.img", "--", "-c", "cat /opt/sh/hello"]).expect(0);
        assert_eq!(done.out, "from the image", "{who:?}");
        // From here on no source is needed.
        let mut offline = there.ply(["run", "app.img", "--", "-c", "cat /opt/sh/hello"]);
        offline.env("PLY_REGISTRY", "http://127.0.0.1:1/{package}");
        assert_eq!(there.finish(offline).expect(0).out, "from the image", "{who:?}");
    }
}

#[test]
fn a_locked_build_fails_where_the_lock_would_change() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", SHELL);
    let missing = world.run(["build", "app", "--locked"]).expect(1);
    assert!(missing.err.contains("ply.lock"), "{}", missing.err);
    world.run(["build", "app"]).expect(0);
    world.run(["build", "app", "--locked"]).expect(0);
    world.write("app/ply.toml", SHELL.replace("[run]", "[build.dependencies]\nbusybox = \"*\"\n[run]"));
    let changed = world.run(["build", "app", "--locked"]).expect(1);
    assert!(changed.err.contains("busybox"), "{}", changed.err);
}

#[test]
fn the_lock_names_each_package_with_its_digest_base_last() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", SHELL.replace("[run]", "[build.dependencies]\nnode = \"22\"\n[run]"));
    world.run(["build", "app"]).expect(0);
    let lock = world.read("app/ply.lock");
    assert!(lock.starts_with("version = 1\n"), "{lock}");
    assert!(lock.find("name = \"node\"").unwrap() < lock.find("name = \"debian\"").unwrap(), "{lock}");
    assert!(lock.contains(&registry()) && lock.contains("digest.x64 = \"sha256:"), "{lock}");
    assert_eq!(world.run(["build", "app", "--locked"]).expect(0).code, Some(0));
}

#[test]
fn init_writes_a_manifest_that_runs() {
    for who in BOTH {
        let world = World::new(who);
        world.write(
            "My App/package.json",
            "{\"name\": \"my-app\", \"version\": \"2.0.0\", \"scripts\": {\"start\": \"node index.js\"}}",
        );
        world.write("My App/index.js", "console.log('it runs')");
        world.run(["init", "-y", "My App"]).expect(0);
        let text = world.read("My App/ply.toml");
        assert!(text.contains("name = \"my-app\"") && text.contains("version = \"2.0.0\""), "{text}");
        assert_eq!(world.run(["run", "./My App"]).expect(0).out, "it runs\n", "{who:?}");
        let twice = world.run(["init", "-y", "My App"]).expect(1);
        assert!(twice.err.contains("is there already"), "{}", twice.err);
    }
}
