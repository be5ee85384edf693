//! The store: what is there, who needs it, what goes, and that every byte is what its name says.

use crate::harness::{BOTH, Who, World};
use crate::inside::{sh, shell};

#[test]
fn what_is_needed_stays_and_the_rest_goes() {
    for who in BOTH {
        let world = shell(who);
        world.run(["fetch", "busybox"]).expect(0);
        sh(&world, &[], "true");
        let listed = world.run(["store", "ls"]).expect(0).out;
        assert!(
            listed.contains("busybox") && listed.contains("debian") && listed.contains("sh-1.0.0"),
            "{who:?}\n{listed}"
        );
        let dry = world.run(["gc", "--dry-run"]).expect(0).out;
        assert!(dry.contains("busybox") && !dry.contains("debian"), "{who:?}\n{dry}");
        world.run(["gc"]).expect(0);
        let listed = world.run(["store", "ls"]).expect(0).out;
        assert!(!listed.contains("busybox") && listed.contains("debian"), "{who:?}\n{listed}");
        let needed = world.run(["store", "ls", "--json"]).expect(0).out;
        let rows: serde_json::Value = serde_json::from_str(&needed).unwrap();
        let debian = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["name"].as_str().unwrap().starts_with("debian"))
            .unwrap();
        let refused = world.run(["store", "rm", debian["name"].as_str().unwrap()]);
        assert_eq!(refused.code, Some(1), "{who:?}");
        assert!(refused.err.contains("sh"), "{who:?}: says who needs it\n{}", refused.err);
        world.run(["rm", "sh"]).expect(0);
        world.run(["gc"]).expect(0);
        assert_eq!(world.run(["store", "ls"]).expect(0).out, "", "{who:?}");
    }
}

#[test]
fn a_running_image_is_never_taken() {
    for who in BOTH {
        let world = shell(who);
        world
            .run(["run", "./sh", "-d", "--", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"])
            .expect(0);
        std::fs::remove_file(world.path("data/apps/sh/installed.json")).unwrap();
        world.run(["gc"]).expect(0);
        assert_eq!(world.run(["exec", "sh", "cat", "/etc/debian_version"]).code, Some(0), "{who:?}");
        world.run(["stop", "sh"]).expect(0);
    }
}

#[test]
fn verify_finds_a_changed_byte_and_names_the_image() {
    let world = World::new(Who::User);
    world.run(["fetch", "busybox"]).expect(0);
    world.run(["verify"]).expect(0);
    let store = world.path("data/store");
    let entry = std::fs::read_dir(&store)
        .unwrap()
        .flatten()
        .find(|e| e.file_name().to_string_lossy().starts_with("sha256:"))
        .unwrap();
    let image = entry.path().join("image.img");
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::set_permissions(&image, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(&image, bytes).unwrap();
    let done = world.run(["verify"]).expect(1);
    assert!(done.out.contains("busybox") || done.err.contains("busybox"), "{}{}", done.out, done.err);
}

/// The folder of an image in the store, by the beginning of its name.
fn folder_of(world: &World, name: &str) -> std::path::PathBuf {
    let json = world.run(["store", "ls", "--json"]).expect(0).out;
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = rows.as_array().unwrap().iter().find(|r| r["name"].as_str().unwrap().starts_with(name));
    let digest = row.expect("it is in the store")["digest"].as_str().unwrap();
    world.path("data/store").join(digest)
}

#[test]
fn what_is_not_whole_in_the_store_is_fetched_or_built_again() {
    for who in BOTH {
        let world = shell(who);
        for (image, file) in
            [("debian", "image.img"), ("debian", "manifest.toml"), ("sh", "image.img"), ("sh", "lock.toml")]
        {
            sh(&world, &[], "true");
            let path = folder_of(&world, image).join(file);
            let half = std::fs::metadata(&path).unwrap().len() / 2;
            std::fs::File::options().write(true).open(&path).unwrap().set_len(half).unwrap();
            assert_eq!(
                sh(&world, &[], "cat /etc/debian_version; ls /bin >/dev/null && echo fine").lines().last(),
                Some("fine"),
                "{who:?} {image} {file}"
            );
            std::fs::remove_file(folder_of(&world, image).join(file)).unwrap();
            world.run(["build", "sh", "-o", "out.img"]).expect(0);
            // What was built here has no source that could give it again.
            let code = if image == "sh" { 125 } else { 0 };
            world.run(["run", "--installed", "sh", "--entrypoint", "/bin/true"]).expect(code);
            sh(&world, &[], "true");
            world.run(["verify"]).expect(0);
        }
    }
}

#[test]
fn what_only_verify_sees_is_told_with_the_way_out() {
    let world = shell(Who::User);
    sh(&world, &[], "true");
    let folder = folder_of(&world, "debian");
    let image = folder.join("image.img");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[..4].fill(0);
    std::fs::write(&image, bytes).unwrap();
    std::fs::remove_dir_all(folder.join("tree")).unwrap();
    let done = world.run(["run", "./sh"]).expect(125);
    assert!(done.err.contains("hint: ply verify finds what is damaged in the store"), "{}", done.err);
    world.run(["verify"]).expect(1);
    sh(&world, &[], "true");
    world.run(["verify"]).expect(0);
}

#[test]
fn two_of_everything_at_once_both_succeed() {
    for who in BOTH {
        let world = shell(who);
        let mut runs: Vec<_> = (0..4)
            .map(|i| world.start(["run", "./sh", "--name", &format!("n{i}"), "--", "-c", "echo fine"]))
            .collect();
        for run in &mut runs {
            let done = run.wait(std::time::Duration::from_secs(60)).expect(0);
            assert_eq!(done.out, "fine\n", "{who:?}");
        }
    }
}

#[test]
fn check_holds_an_image_against_a_policy() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", crate::inside::SHELL);
    world.run(["build", "app", "-o", "app.img"]).expect(0);
    world.run(["check", "app"]).expect(0);
    world.run(["check", "app.img"]).expect(0);
    world.write("policy.toml", "bases = [\"alpine\"]\n");
    let done = world.run(["check", "app.img", "--against", "policy.toml", "--json"]).expect(1);
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["ok"], false);
    let mut torn = std::fs::read(world.path("work/app.img")).unwrap();
    torn.truncate(torn.len() / 2);
    world.write("torn-1.0.0-linux-x64.img", torn);
    let done = world.run(["check", "torn-1.0.0-linux-x64.img"]).expect(1);
    assert!(done.out.contains("torn") || done.err.contains("torn"), "{}{}", done.out, done.err);
}

#[test]
fn config_says_where_everything_comes_from() {
    let world = World::new(Who::User);
    let out = world.run(["config"]).expect(0).out;
    assert!(out.contains("[WORLD]/data") && out.contains("PLY_REGISTRY"), "{out}");
    world.write("../config/config.toml", "default_source = \"/srv/packages\"\n");
    let mut command = world.ply(["config", "--json"]);
    command.env_remove("PLY_REGISTRY");
    let json = world.finish(command).expect(0).out;
    let config: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(config["default_source"], "/srv/packages", "{json}");
}
