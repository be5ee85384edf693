//! Fuzzes `env_file`; the body and what it promises stand in `ply_manifest::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ply_manifest::fuzzing::env_file(bytes));
