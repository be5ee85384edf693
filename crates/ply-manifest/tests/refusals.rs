//! Every refusal in its exact words, place and hint. Each table is one snapshot that holds the file that was
//! read and all that was said of it.

use ply_manifest::*;
use std::fmt::Write;

/// One table: a title and a text a row.
fn table<T>(
    file: &str,
    head: &str,
    rows: &[&str],
    read: impl Fn(&str, &str) -> Result<T, Diagnostics>,
) -> String {
    let mut out = String::new();
    for row in rows {
        let text = format!("{head}{row}\n");
        for line in text[head.len()..].lines() {
            let _ = writeln!(out, "    {line}");
        }
        match read(&text, file) {
            Ok(_) => out.push_str("TAKEN\n"),
            Err(faults) => {
                for fault in faults.0 {
                    let _ = writeln!(out, "{fault}");
                    if let Some(hint) = fault.hint {
                        let _ = writeln!(out, "hint: {hint}");
                    }
                }
            }
        }
        out.push('\n');
    }
    assert!(!out.contains("TAKEN"), "a bad file was taken:\n{out}");
    out
}

/// Snapshots that hold what was said, and not the code that asked.
fn plain() -> insta::internals::SettingsBindDropGuard {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind_to_scope()
}

const HEAD: &str = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n";

fn manifests(rows: &[&str]) -> String {
    table("ply.toml", HEAD, rows, Manifest::parse)
}

#[test]
fn identity() {
    let _plain = plain();
    insta::assert_snapshot!(table(
        "ply.toml",
        "",
        &[
            "",
            "[pakage]\nname = \"a\"",
            "[package]",
            "[package]\nname = \"My App\"\nversion = \"1.2\"",
            "[package]\nname = \"app-2\"\nversion = \"v1\"",
            "[package]\nname = \"\"\nversion = \"1.0.0\"",
            "[package]\nname = 3\nversion = 1.0",
            "[package]\nname = \"a\"\nversion = \"1.0.0\"\nowner = \"Me\"\ndescription = \"two\\nlines\"\nlicence = \"MIT\"",
            "package = 3",
            "[[package]]\nname = \"a\"\nversion = \"1.0.0\"",
            "[package]\nname = \"a\"\nname = \"b\"\nversion = \"1.0.0\"",
            "[package\nname = \"a\"",
            "[package]\nname = \"a\nversion = \"1.0.0\"",
            "[package]\nname = \"a\\u0000b\"\nversion = \"1.0.0\"",
            "[[service]]\nrun = \"redis@8\"",
        ],
        Manifest::parse
    ));
}

#[test]
fn keys_and_shapes() {
    let _plain = plain();
    insta::assert_snapshot!(manifests(&[
        "[run]\nentripoint = [\"a\"]",
        "[runn]\nuser = \"a:1:1\"",
        "[run.helth]\nport = 3000",
        "[run.health]\nport = 3000\ngrase = \"3s\"",
        "banana = 1",
        "[build]\nentrypoint = [\"a\"]",
        "[run]\nenv = \"A=1\"",
        "[env]\nA = \"1\"\n[run.env]\nB = \"2\"",
        "[build.dependencies]\nnode = \"22\"\n[dependencies]\nnode = \"22\"",
        "provides_abi = \"linux-x64-gnu\"\n[layer]\nabi = \"linux-x64-gnu\"",
        "entrypoint = [\"a\"]\n[run]\nentrypoint = [\"b\"]",
    ]));
}

#[test]
fn build() {
    let _plain = plain();
    insta::assert_snapshot!(manifests(&[
        "[build]\nbase = \"debian\"",
        "[build]\nbase = \"corp/debian@13\"",
        "[build]\nbase = \"debian@^13\"",
        "[build]\nbase = false",
        "[build]\nbase = 13",
        "[build]\nbase = { name = \"debian\" }",
        "[build]\nbase = { name = \"debian\", version = \"13\", source = \"crop\" }\nsources = { corp = \"/srv\" }",
        "[build]\nbase = \"a@1\"",
        "[build]\nbase = \"debian@13\"\ndependencies = { debian = \"13\" }",
        "[build.dependencies]\nNode = \"22\"\nffmpeg = \">=6\"\nredis = 8\na = \"1\"",
        "[build.dependencies]\nffmpeg = { version = \"6.1\", source = \"mine\" }",
        "[build.dependencies]\nffmpeg = { source = \"mine\" }\n[build.sources]\nmine = \"/srv\"",
        "[build.dependencies]\nboost1.84 = \"1.84\"",
        "[build.dependencies]\nffmpeg = { version = \"6.1\", origin = \"mine\" }",
        "[build.sources]\na = \"ftp://x\"\nb = \"https://\"\nc = \"github:x\"\nd = \"https://x/{name}\"\ne = \"https://u:p@x/\"",
        "[build]\ninclude = [\"/etc\", \"../x\", \"\", \"a/../b\", 3]",
        "[build]\ninclude = \"dist/\"",
        "[build.requires]\nabi = \"Linux X64\"\nabbi = \"x\"",
        "[layer]\npath = [\"bin\", \"/opt/../x\", \"/a:/b\"]\nenv = { \"A=B\" = \"1\" }\nabi = 3",
    ]));
}

#[test]
fn how_it_runs() {
    let _plain = plain();
    insta::assert_snapshot!(manifests(&[
        "[run]\nentrypoint = []",
        "[run]\nentrypoint = \"  \"",
        "[run]\nentrypoint = [\"\"]",
        "[run]\nentrypoint = [\"a\", 3]",
        "[run]\nentrypoint = 3",
        "[run]\nentrypoint = [\"a\\u0000\"]",
        "[run]\nentrypoint = \"echo hi\"",
        "[run]\nuser = \"root\"",
        "[run]\nuser = \"a:0x1:70000\"",
        "[run]\nworkdir = \"srv\"",
        "[run]\nworkdir = \"/srv/../etc\"",
        "[run]\nstop_signal = \"SIGFOO\"",
        "[run]\ncapabilities = \"all\"",
        "[run]\ncapabilities = [\"chwon\", \"net_bind_service\"]",
        "[run]\ncapabilities = 7",
        "[run.env]\nPORT = 3000\nDEBUG = true\n\"A B\" = \"1\"\nN = \"a\\u0000\"\nX = [\"1\"]",
        "[run.ports]\nweb = 0\nadmin = 70000\ntls = \"443\"\n\"a b\" = 1",
        "[run.volumes]\ndata = \"/\"\nb = \"var\"\nc = \"/x/../y\"\n\"d/e\" = \"/z\"\nf = { scope = \"shared\" }",
        "[run.volumes]\na = \"/var/lib/a\"\nb = { path = \"/var//lib/./a/\", ephemeral = true }",
        "[run.volumes]\na = { path = \"/a\", scope = \"share\" }\nb = { path = \"/b\", ephemeral = \"yes\" }\nc = 3",
        "[run.network]\negress = [\"http://x\", \"10.0.0.1/8\", \"*.\", \"1.2.3\", 7]",
        "[run.network]\nallow = []",
        "[run.resources]\nmem = \"512MB\"\ncpu = \"0\"\npids = 0",
        "[run.resources]\nmem = { min = \"2G\", max = \"1G\" }\ncpu = { min = \"1\" }",
        "[run.requests]\nlinks = [\"etc:/etc\", \"/a\", \"/a:/b:rw\", \"/a:/\", { host = \"/a\", at = \"b\" }, { host = \"/a\" }]",
        "[run.requests]\nlinks = [\"/a:/x\", \"/b:/x/\"]",
        "[run.restart]\npolicy = \"on_failure\"\nbackoff = \"0s\"",
        "[run.restart]\nbackoff = \"2m\"\nmax_backoff = \"60s\"",
        "[run.health]\nport = 0\ngrace = \"30\"",
        "[run]\nhealth = {}",
        "[run]\nhealth = {}\nports = { web = 80, admin = 81 }",
    ]));
}

#[test]
fn scale() {
    let _plain = plain();
    insta::assert_snapshot!(manifests(&[
        "[run.scale]\nmin = 0",
        "[run.scale]\nmin = 1\nidle = \"10m\"",
        "[run.scale]\nmin = 4\nmax = 2\nsignal = \"cpu\"\ntarget = 70",
        "[run.scale]\nmax = 4",
        "[run.scale]\nmax = 4\nsignal = \"cpu\"",
        "[run.scale]\nmax = 1\ntarget = 70",
        "[run.scale]\nmax = 4\nsignal = \"cpus\"\ntarget = 70",
        "[run.scale]\nmax = 4\nsignal = \"disk-space\"\ntarget = 70",
        "[run.scale]\nmax = 4\nsignal = \"memory\"\ntarget = 70",
        "[run.scale]\nmax = 4\nsignal = \"metric:queue\"\ntarget = 10",
        "[run.scale]\nmax = 4\nsignal = \"metric:\"\ntarget = 10",
        "[run.scale]\nmax = 4\nsignal = \"cpu\"\ntarget = 0",
        "[run.scale]\nmax = 4\nsignal = \"cpu\"\ntarget = \"101%\"",
        "[run.scale]\nmax = 4\nsignal = \"net\"\ntarget = \"40\"",
        "[run.scale]\nmax = 4\nsignal = \"cpu\"\ntarget = 70\nmetrics_path = \"/metrics\"",
        "[run.scale]\nmin = -1\nmax = 0\ncooldown = \"soon\"",
    ]));
}

#[test]
fn params() {
    let _plain = plain();
    insta::assert_snapshot!(manifests(&[
        "[run.params]\nname = \"x\"\nstate = \"y\"\nself = \"z\"",
        "[run.params]\npassword = { secret = true, value = \"x\" }",
        "[run.params]\npassword = { secret = true, default = \"x\", external = true }",
        "[run.params]\npassword = { secret = false }",
        "[run.params]\npassword = { external = true }",
        "[run.params]\nport_number = 3\n\"a b\" = \"1\"\n\"a.b\" = \"1\"",
        "[run.params]\na = \"{b}\"\nb = \"{c}\"\nc = \"{a}\"",
        "[run.params]\na = \"{a}\"",
        "[run.params]\nuser = \"x\"\na = \"{usr}\"\nb = \"{zzzzz}\"\nc = \"{state}\"\nd = \"{db.url}\"\ne = \"{self}\"",
        "[run.params]\na = \"{\"\nb = \"}\"\nc = \"{ x }\"\nd = \"{}\"",
        "[run]\nparams = {}\nenv = { A = \"{user}\", B = \"{started_at}\", C = \"{db.url}\", D = \"{\\\"a\\\": 1}\", E = \"${x\", F = \"${A-b}\" }",
    ]));
}

#[test]
fn compositions() {
    let _plain = plain();
    insta::assert_snapshot!(table(
        "ply.toml",
        "[package]\nname = \"s\"\n",
        &[
            "",
            "[[service]]\nname = \"db\"",
            "[service]\nrun = \"redis@8\"",
            "[[service]]\nrun = \"redis@8\"\nenvironment = [\"A=1\"]",
            "[[service]]\nrun = \"redis@8\"\n[[service]]\nrun = \"redis@7\"",
            "[[service]]\nrun = \"redis@8\"\nenv = [\"A=1\"]\ne = [\"B=1\"]",
            "[[service]]\nrun = \"redis@8\"\nenv = [\"A\", \"=1\", \"B=1\", \"B=2\", 3]",
            "[[service]]\nrun = \".\"",
            "[[service]]\nrun = \"Redis\"\nname = \"My_DB\"",
            "[[service]]\nrun = \"a@1\"\nafter = [\"b\"]\n[[service]]\nrun = \"b@1\"\nenv = [\"X={a.url}\"]",
            "[[service]]\nrun = \"a@1\"\nafter = [\"a\"]",
            "[[service]]\nrun = \"server@1\"\nafter = [\"srever\", \"x y\", \"server.ready = 1\", \"server == 'ok'\"]",
            "[[service]]\nrun = \"a@1\"\nenv = [\"A={url}\", \"B={bb.url}\", \"C={a.state}\", \"D={\", \"E={self.x}\", \"F=${\"]",
            "[[service]]\nrun = \"a@1\"\nparams = { host = \"x\", \"a b\" = \"y\", z = 3 }",
            "[[service]]\nrun = \"a@1\"\npublish = [\"0\", \"99999\", \"{a.port}\", \"x:80\", \"$\", 80]",
            "[[service]]\nrun = \"a@1\"\ndomain = [\"a b\", \"{self.name}.x\", \"-x.com\"]",
            "[[service]]\nrun = \"a@1\"\nvolume = [\"data\", \"/\", \"a b:/x\", \"x:y\"]",
            "license = \"MIT\"\n[[service]]\nrun = \"a@1\"\npublish = \"${A}{self.port}\"",
            "[[service]]\nrun = \"a@1\"\nscale = 0\negress = \"block\"\nsecret_env = [\"A=B\"]",
            "[[service]]\nrun = \"a@1\"\negress = {}",
            "[[service]]\nrun = \"a@1\"\negress = { mode = \"enforce\", allow = [\"x y\"] }",
            "[[service]]\nrun = \"a@1\"\nref = \"v1\"",
            "[[service]]\nrun = \"a@1\"\n[[app]]\nrun = \"b@1\"",
            "[stack]\nname = \"s\"\n[[app]]\nrun = \"b@1\"",
        ],
        Composition::parse
    ));
    insta::assert_snapshot!(
        "composition_without_a_header",
        table(
            "ply.toml",
            "",
            &["[[service]]\nrun = \"redis@8\"", "[package]\nname = \"a\"\nversion = \"1.0.0\"",],
            Composition::parse
        )
    );
}

#[test]
fn the_files_beside_it() {
    let _plain = plain();
    insta::assert_snapshot!(
        "locks",
        table(
            "ply.lock",
            "",
            &[
                "",
                "version = 2\nwhatever = 1",
                "version = \"1\"",
                "version = 0",
                "version = 1\n[[package]]\nname = \"node\"",
                "version = 1\n[[package]]\nname = \"node\"\nversion = \"22\"\nsource = \"x\"\ndigest = { x86 = \"y\", x64 = \"sha256:1\" }",
                "version = 1\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"/s\"\ndigest = {}\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"/s\"\ndigest = {}",
                "version = 1\n[service.\"a b\"]\nref = \"x\"",
            ],
            Lock::parse
        )
    );
    insta::assert_snapshot!(
        "overlays",
        table(
            "ply.dev.toml",
            "",
            &[
                "entrypoint = []",
                "[run]\nentrypoint = [\"a\"]",
                "envs = { A = \"1\" }",
                "env = { A = 1 }",
                "links = [\"a\", \"a:b:rw\", \":b\", \"a:../b\", \"a:b:ro:c\"]",
            ],
            DevOverlay::parse
        )
    );
    insta::assert_snapshot!(
        "configs",
        table(
            "config.toml",
            "",
            &["default_sorce = \"/srv\"", "default_source = \"srv\"", "default_source = 3",],
            Config::parse
        )
    );
    insta::assert_snapshot!(
        "policies",
        table(
            "policy.toml",
            "",
            &[
                "base = [\"debian@13\"]",
                "bases = [\"x/debian@13\", \"Debian\"]",
                "[least]\nopenssl = \"3\"\nOpenSSL = \"3.0.0\"",
                "[capabilities]\nforbid = [\"root\"]\nallow = []",
                "[egress]\ndeclared = \"yes\"\nrequire = [\"http://x\"]",
            ],
            Policy::parse
        )
    );
    insta::assert_snapshot!(
        "env_files",
        table(".env", "", &["export A=1", "A", "A=1\nB C=2\n=3\n A=4", "A=x\0y",], EnvFile::parse)
    );
    insta::assert_snapshot!(
        "catalogs",
        table(
            "state.json",
            "",
            &[
                "",
                "{}",
                "[]",
                "{\"packages\": [{\"name\": 3, \"versions\": []}]}",
                "{\"packages\": [\n  {\"name\": \"a\", \"versions\": [{\"version\": \"1.0.0\", \"bytes\": \"12\"}]}]}",
                "{\"packages\": [{\"name\": \"a\", \"versions\": [{\"version\": \"1.0.0\", \"dependencies\": {\"b\": \"1\"}}]}]}",
            ],
            Catalog::parse
        )
    );
    insta::assert_snapshot!("indexes", table("index.json", "", &["", "{}", "[\"a\""], Index::parse));
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_file() {
    let text = "[package]\nname = \"A\"\nversion = \"1\"\n[run]\nusr = \"x\"\nworkdir = \"x\"\n[run.ports]\nweb = 0\n";
    let faults = Manifest::parse(text, "ply.toml").unwrap_err();
    let lines: Vec<usize> = faults.0.iter().map(|f| f.place.unwrap().line).collect();
    assert_eq!(lines, [2, 3, 5, 6, 8]);
}

#[test]
fn a_file_of_nothing_but_faults_tells_the_first_fifty_and_counts_the_rest() {
    let rows: String = (0..1000).map(|n| format!("k{n} = 1\n")).collect();
    let faults = Manifest::parse(&format!("{HEAD}{rows}"), "ply.toml").unwrap_err();
    assert_eq!(faults.0.len(), 51);
    assert_eq!(faults.0[50].to_string(), "ply.toml: 950 more faults are not shown");
}

#[test]
fn a_column_counts_characters() {
    let text = "# é\n[package]\nname = \"a\" # ü\nversion = \"1.0.0\"\n\"ü\".x = { é = 1 }\n";
    assert!(Manifest::parse(text, "ply.toml").is_err(), "bare keys are ascii");
    let text = "package = { name = \"a\", version = \"1.0.0\", \"üü\" = 1, usr = 2 }\n";
    let faults = Manifest::parse(text, "ply.toml").unwrap_err();
    let columns: Vec<usize> = faults.0.iter().map(|f| f.place.unwrap().column).collect();
    assert_eq!(columns, [44, 54]);
}
