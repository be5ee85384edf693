//! What a user sees when something is wrong: exact words and exit codes.

use crate::harness::{Who, World};
use crate::inside::SHELL;

/// Runs and gives what is seen, paths of the machine replaced.
fn seen(world: &World, args: &[&str]) -> String {
    world.run(args).seen().replace(&crate::harness::registry(), "[REGISTRY]")
}

#[test]
fn words_from_other_tools_are_answered() {
    let world = World::new(Who::User);
    insta::assert_snapshot!(seen(&world, &["pull", "redis"]));
    insta::assert_snapshot!(seen(&world, &["deploy", "x"]));
}

#[test]
fn a_manifest_with_faults() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", SHELL.replace("entrypoint", "entripoint"));
    insta::assert_snapshot!(seen(&world, &["build", "app"]));
}
