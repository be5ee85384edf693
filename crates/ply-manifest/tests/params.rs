//! Params of a run: what fills what, what wins, what is a secret, and what is refused in which words.

use ply_manifest::*;
use std::collections::BTreeMap;

/// A keg as the reference shows one.
const KEG: &str = r#"
[package]
name = "postgres"
version = "17.10.3"
base = "debian@13"
entrypoint = ["postgres"]

[params]
user     = "postgres"
database = "{user}"
password = { secret = true }
token    = { secret = true, external = true }
url      = "postgres://{user}:{password}@{host}:{port}/{database}"
plain    = "{name}-{version}-{arch}-{image}-{scale} {{x}}"

[env]
POSTGRES_USER = "{user}"
POSTGRES_DB   = "{database}"
"#;

struct Run {
    manifest: Manifest,
    facts: Facts,
    overrides: BTreeMap<String, String>,
    secrets: Option<BTreeMap<String, String>>,
    given: Vec<(String, String)>,
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn run(env: &str) -> Run {
    let facts = Facts {
        name: "db".into(),
        version: "17.10.3".into(),
        arch: "x64".into(),
        image: "postgres@17".into(),
        scale: 2,
        host: Err("a rootless run has no address".into()),
        port: Ok(5432),
    };
    let manifest = Manifest::parse(&format!("{KEG}{env}\n"), "ply.toml").unwrap_or_else(|f| panic!("{f}"));
    Run { manifest, facts, overrides: BTreeMap::new(), secrets: None, given: Vec::new() }
}

impl Run {
    fn params(&self) -> Params<'_> {
        Params {
            app: "postgres",
            declared: self.manifest.run.params.as_ref(),
            overrides: &self.overrides,
            secrets: self.secrets.as_ref(),
            facts: &self.facts,
        }
    }

    fn vars(name: &str) -> Option<String> {
        (name == "WHO").then(|| "{user} $WHO".to_owned())
    }

    fn env(&self) -> Result<Vec<EnvVar>, Vec<ParamError>> {
        self.params().env(&self.manifest.run.env, &self.given, &Self::vars)
    }

    /// The environment as `K=V` lines, a secret marked with `!`.
    fn lines(&self) -> Vec<String> {
        let env = self.env().unwrap_or_else(|e| panic!("{e:?}"));
        env.iter().map(|v| format!("{}{}={}", if v.secret { "!" } else { "" }, v.key, v.value)).collect()
    }

    fn said(&self) -> Vec<String> {
        let errors = self.env().expect_err("it should be refused");
        let line = |e: &ParamError| match e.hint() {
            Some(hint) => format!("{e} [{hint}]"),
            None => e.to_string(),
        };
        errors.iter().map(line).collect()
    }
}

#[test]
fn declared_defaults_fill_the_keg_s_own_env() {
    assert_eq!(run("").lines(), ["POSTGRES_USER=postgres", "POSTGRES_DB=postgres"]);
}

#[test]
fn an_override_reaches_the_computed_params_and_is_taken_as_it_is() {
    let mut run = run("");
    run.overrides.insert("user".into(), "{host} $X {{".into());
    assert_eq!(run.lines(), ["POSTGRES_USER={host} $X {{", "POSTGRES_DB={host} $X {{"]);
}

#[test]
fn facts_fill_and_escapes_are_undone() {
    assert_eq!(run("P = '{plain}'").lines()[2], "P=db-17.10.3-x64-postgres@17-2 {x}");
    let mut run = run("A = '{addr} {base_url} {{}} $$'");
    run.facts.host = Ok("db.ply".into());
    assert_eq!(run.lines()[2], "A=db.ply:5432 http://db.ply:5432 {} $");
}

#[test]
fn what_fills_a_hole_is_never_cut_again() {
    assert_eq!(run("A = '$WHO|${WHO}|{user}'").lines()[2], "A={user} $WHO|{user} $WHO|postgres");
}

#[test]
fn a_secret_read_alone_is_refused_in_the_reference_s_words() {
    assert_eq!(
        run("POSTGRES_PASSWORD = '{password}'").said(),
        [
            "postgres: [env] POSTGRES_PASSWORD reads a secret param — pass -e POSTGRES_PASSWORD=… , or run it from a stack (ply up mints secrets)"
        ]
    );
    let mut through = run("URL = '{url}'");
    through.facts.host = Ok("db.ply".into());
    assert_eq!(
        through.said(),
        [
            "postgres: [env] URL reads a secret param — pass -e URL=… , or run it from a stack (ply up mints secrets)"
        ]
    );
}

#[test]
fn a_given_value_always_wins_and_what_it_replaces_is_not_read() {
    let mut run = run("POSTGRES_PASSWORD = '{password}'\nURL = '$NOWHERE {url}'");
    run.given = pairs(&[("URL", "no"), ("POSTGRES_PASSWORD", "dev"), ("URL", "{user} $X"), ("MORE", "1")]);
    assert_eq!(
        run.lines(),
        [
            "POSTGRES_USER=postgres",
            "POSTGRES_DB=postgres",
            "!POSTGRES_PASSWORD=dev",
            "!URL={user} $X",
            "MORE=1"
        ]
    );
    let env = run.env().unwrap();
    assert_eq!(env[3].origin, EnvOrigin::Given(2));
    assert_eq!(env[0].origin, EnvOrigin::Manifest);
}

#[test]
fn a_secret_that_is_kept_fills_and_taints_what_reads_it() {
    let mut run = run("URL = '{url}'\nP = '{password}'\nT = '{token}'");
    run.facts.host = Ok("db.ply".into());
    run.secrets = Some(pairs(&[("password", "s3cret"), ("token", "t")]).into_iter().collect());
    assert_eq!(
        run.lines()[2..],
        ["!URL=postgres://postgres:s3cret@db.ply:5432/postgres", "!P=s3cret", "!T=t"]
    );
    let shown = format!("{:?} {:?}", run.env().unwrap(), run.params().value("url").unwrap());
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_secret_param_that_is_given_stays_secret() {
    let mut run = run("P = 'x{password}'");
    run.overrides.insert("password".into(), "dev".into());
    assert_eq!(run.lines()[2], "!P=xdev");
}

#[test]
fn what_nothing_reads_may_be_unavailable() {
    let run = run("");
    assert!(run.env().is_ok());
    assert_eq!(
        run.params().value("url").unwrap_err().to_string(),
        "postgres: param url reads a secret param — pass -e password=… , or run it from a stack (ply up mints secrets)"
    );
}

#[test]
fn every_gap_is_named_with_its_key_at_once() {
    let mut run = run("A = '{addr}'\nB = '$NOPE'\nC = '{token}'\nD = '{base_url}'");
    run.overrides.insert("usr".into(), "x".into());
    insta::assert_snapshot!(run.said().join("\n"), @r#"
    postgres has no param "usr" to set [did you mean "user"?]
    postgres: [env] A reads {addr}, which this run does not have: a rootless run has no address [pass -e A=…]
    postgres: [env] B reads $NOPE, which is not set [set NOPE, write $$ for a literal $, or pass -e B=…]
    postgres: [env] C reads {token}, an external secret that nobody gave [give it with --param token=…, or pass -e C=…]
    postgres: [env] D reads {base_url}, which this run does not have: a rootless run has no address [pass -e D=…]
    "#);
}

#[test]
fn a_sealed_value_passes_untouched_and_masked() {
    assert_eq!(run("A = 'enc:v1:{x}$Y'\nB = 'enc:value'").lines()[2..], ["!A=enc:v1:{x}$Y", "B=enc:value"]);
}

#[test]
fn without_params_everything_is_literal() {
    let facts = run("").facts;
    let none = BTreeMap::new();
    let params = Params { app: "a", declared: None, overrides: &none, secrets: None, facts: &facts };
    let env = params.env(&pairs(&[("A", "{x} $Y {{ $$")]), &[], &|_| None).unwrap();
    assert_eq!(env[0].value, "{x} $Y {{ $$");
}

#[test]
fn an_overlay_s_holes_are_refused_at_the_run() {
    let run = run("");
    let said = |value: &str| {
        let errors = run.params().env(&pairs(&[("A", value)]), &[], &|_| None).unwrap_err();
        errors[0].to_string()
    };
    assert_eq!(said("{usr}"), "postgres: [env] A reads {usr}, which names nothing");
    assert_eq!(said("{state}"), "postgres: [env] A reads {state}, which changes after launch");
    assert_eq!(said("{"), "postgres: [env] A can't be read: a { is never closed");
}

#[test]
fn a_circle_ends() {
    let facts = run("").facts;
    let none = BTreeMap::new();
    let declared: BTreeMap<String, Param> = [("a", "{b}"), ("b", "{c}{a}"), ("c", "{c}"), ("d", "x{a}")]
        .map(|(k, v)| (k.into(), Param::Value(v.into())))
        .into();
    let params =
        Params { app: "x", declared: Some(&declared), overrides: &none, secrets: None, facts: &facts };
    for name in ["a", "b", "c", "d"] {
        assert!(params.value(name).unwrap_err().to_string().ends_with("which reads itself"), "{name}");
    }
}

#[test]
fn a_long_chain_and_one_that_doubles_are_bounded() {
    let facts = run("").facts;
    let none = BTreeMap::new();
    let chain = |n: usize, body: fn(String) -> String| -> BTreeMap<String, Param> {
        let step = |i: usize| {
            (format!("p{i}"), Param::Value(if i == 0 { "x".into() } else { body(format!("{{p{}}}", i - 1)) }))
        };
        (0..n).map(step).collect()
    };
    let value = |declared: &BTreeMap<String, Param>, name: &str| {
        Params { app: "x", declared: Some(declared), overrides: &none, secrets: None, facts: &facts }
            .value(name)
    };
    let long = chain(100_000, |previous| previous);
    assert_eq!(value(&long, "p99999").unwrap().value, "x");
    let doubling = chain(64, |previous| format!("{previous}{previous}"));
    assert_eq!(value(&doubling, "p10").unwrap().value.len(), 1024);
    assert_eq!(value(&doubling, "p63").unwrap_err().to_string(), "x: param p63 grows beyond 131072 bytes");
}
