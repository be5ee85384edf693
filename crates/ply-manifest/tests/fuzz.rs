//! Every fuzz target over its corpus and over seeded mutations of it: a few seconds here, longer with
//! `PLY_FUZZ_ROUNDS`. The same seed gives the same inputs on every machine.

use ply_manifest::fuzzing::{TARGETS, Target};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

/// The mutated inputs of one target, unless `PLY_FUZZ_ROUNDS` says otherwise.
const ROUNDS: u64 = 1_000;
/// The longest that one input may take, in a build without optimisation on a busy machine.
const SLOWEST: Duration = Duration::from_secs(10);

/// Words that a mutation may put in: the joints of the formats.
const WORDS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    "=",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    ".",
    ",",
    "\n",
    "\r\n",
    "\0",
    "#",
    "$",
    "${",
    "{{",
    "}}",
    "\\u0000",
    "\\",
    "é",
    "\u{feff}",
    "🦀",
    "..",
    "/",
    "-1",
    "0",
    "99999999999999999999",
    "true",
    "null",
    "{}",
    "[]",
    "secret = true",
    "[run.scale]\n",
    "[[service]]\n",
    "enc:v1:",
    "1.0.0+",
];

/// xorshift64*: enough to wander, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

fn mutate(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seeds[dice.below(seeds.len())].clone();
    for _ in 0..1 + dice.below(6) {
        let at = dice.below(bytes.len() + 1);
        let end = (at + dice.below(40)).min(bytes.len());
        match dice.below(7) {
            0 => {
                bytes.splice(at..at, WORDS[dice.below(WORDS.len())].bytes());
            }
            1 => {
                bytes.drain(at..end);
            }
            2 => {
                let part = bytes[at..end].to_vec();
                let to = dice.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            4 => {
                let other = &seeds[dice.below(seeds.len())];
                let from = dice.below(other.len() + 1);
                let to = (from + dice.below(80)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            5 => {
                let word = WORDS[dice.below(WORDS.len())];
                bytes.splice(at..end, word.repeat(1 + dice.below(60)).bytes());
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// What this thread has computed so far: however much else the machine does, it is the input that counts.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn hold(name: &str, target: Target, input: &[u8]) {
    let start = cpu_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(outcome.is_ok(), "target {name} broke on: {:?}", String::from_utf8_lossy(input));
    assert!(
        cpu_time() - start < SLOWEST,
        "target {name} took {:?} for: {:?}",
        cpu_time() - start,
        String::from_utf8_lossy(input)
    );
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
        Err(_) => default,
    }
}

#[test]
fn every_target_has_a_corpus_and_a_file_and_nothing_else_is_there() {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (name, _) in TARGETS {
        assert!(!corpus(name).is_empty(), "{name}");
        let file = fuzz.join("fuzz_targets").join(format!("{name}.rs"));
        assert!(std::fs::read_to_string(file).unwrap().contains(&format!("fuzzing::{name}(")), "{name}");
    }
    let names: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), TARGETS.len());
}

#[test]
fn no_seed_and_no_mutation_of_one_breaks_a_promise() {
    let rounds = setting("PLY_FUZZ_ROUNDS", ROUNDS);
    let seed = setting("PLY_FUZZ_SEED", 1);
    for (n, (name, target)) in TARGETS.into_iter().enumerate() {
        let seeds = corpus(name);
        for input in &seeds {
            hold(name, target, input);
        }
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n as u64 + 1));
        for _ in 0..rounds {
            hold(name, target, &mutate(&seeds, &mut dice));
        }
    }
}

/// Inputs made to be slow or deep rather than wrong, each for the targets that it means.
#[test]
fn huge_and_deep_inputs_end_soon() {
    let head = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n";
    let stack = "[package]\nname = \"s\"\n";
    // A quarter of what a file may hold, and all of it in a long run.
    let share = if setting("PLY_FUZZ_ROUNDS", ROUNDS) > ROUNDS { 1 } else { 4 };
    let many = |n: usize, row: &dyn Fn(usize) -> String| {
        (0..if n > 1_000 { n / share } else { n }).map(row).collect::<String>()
    };
    let dotted = |n: usize| vec!["a"; n].join(".");
    let toml = [
        "[".repeat(200_000 / share),
        "a=".to_owned() + &"[".repeat(200_000 / share),
        "a=".to_owned() + &"{a=".repeat(100_000 / share),
        dotted(100_000 / share) + " = 1",
        format!("[{}]\n{} = {{ {} = 1 }}", dotted(79), dotted(79), dotted(79)),
        many(78, &|_| format!("{}={{", dotted(78))) + "x=1" + &"}".repeat(78),
        "a=".to_owned() + &many(78, &|_| format!("{{{}=", dotted(78))) + "1" + &"}".repeat(78),
        many(40_000, &|n| format!("k{n} = 1\n")),
        "A\n".repeat(200_000 / share),
        "\n".repeat(1_000_000 / share),
    ];
    let manifests = [
        format!("[run.env]\n{}", many(40_000, &|n| format!("K{n} = \"v\"\n"))),
        many(60_000, &|n| format!("k{n} = 1\n")),
        format!("[run.volumes]\n{}", many(25_000, &|n| format!("v{n} = \"/v{n}\"\n"))),
        format!("[run.params]\np0 = \"x\"\n{}", many(30_000, &|n| format!("p{} = \"{{p{n}}}\"\n", n + 1))),
        format!(
            "[run.params]\np0 = \"x\"\n{}",
            many(60, &|n| format!("p{} = \"{{p{n}}}{{p{n}}}\"\n", n + 1))
        ),
        format!(
            "[run.params]\n{}",
            many(300, &|n| format!("p{n} = \"{}\"\n", many(300, &|m| format!("{{p{m}}}"))))
        ),
        format!("[run.params]\n{}", many(20_000, &|n| format!("p{n} = \"{{zz{n}}}\"\n"))),
        format!("[run.params]\nx = \"{}\"\n", "{name}".repeat(150_000 / share)),
        format!("[build]\ninclude = [{}]", "\"a\",".repeat(200_000 / share)),
        format!("[run.network]\negress = [{}]", "\"a b\",".repeat(100_000 / share)),
        format!(
            "[build.dependencies]\n{}",
            many(20_000, &|n| format!("d{n} = {{ version = \"1\", source = \"s{n}\" }}\n"))
        ),
    ];
    let stacks = [
        many(15_000, &|n| format!("[[service]]\nrun = \"m{n}@1\"\n")),
        many(10_000, &|n| format!("[[service]]\nrun = \"m{n}@1\"\nafter = [\"m{}\"]\n", n + 1)),
        format!("[[service]]\nrun = \"a@1\"\nenv = [{}]", many(60_000, &|n| format!("\"K{n}=v\","))),
    ];
    let others = [
        ("lock", format!("version = 1\n{}", "[[package]]\n".repeat(80_000 / share))),
        ("env_file", many(100_000, &|n| format!("K{n}=v\n"))),
        ("env_file", "A\n".repeat(400_000 / share)),
        ("index", "[".repeat(100_000 / share)),
        ("catalog", format!("{{\"packages\": {}", "[".repeat(100_000 / share))),
        (
            "catalog",
            format!(
                "{{\"packages\": [{{\"name\": \"a\", \"versions\": [{}]}}]}}",
                vec!["{\"version\": \"1.0.0\"}"; 20_000 / share].join(",")
            ),
        ),
        ("nouns", "0".repeat(1_000_000 / share)),
        ("nouns", format!("1.0.0+{}", "a.".repeat(500_000 / share))),
        ("nouns", "é".repeat(500_000 / share)),
        ("params", "{".repeat(500_000 / share)),
        ("params", "$".repeat(500_001 / share)),
    ];
    let toml = toml.into_iter().flat_map(|text| ["toml_json", "manifest"].map(|name| (name, text.clone())));
    let manifests = manifests.into_iter().map(|text| ("manifest", format!("{head}{text}")));
    let stacks = stacks.into_iter().map(|text| ("composition", format!("{stack}{text}")));
    for (name, input) in toml.chain(manifests).chain(stacks).chain(others) {
        let (_, target) =
            TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target of that name");
        let start = cpu_time();
        target(input.as_bytes());
        let took = cpu_time() - start;
        let shown: String = input.chars().skip(40).take(60).flat_map(char::escape_debug).collect();
        assert!(took < SLOWEST, "target {name} took {took:?} for …{shown}");
    }
}
