//! ply: a package manager and a container runtime in one binary.

fn main() {}
