//! Node, Bun and Deno.

use super::{Detected, Peek, Stack, argv, compiled};
use ply_manifest::Entrypoint;
use serde_json::Value;

/// The Node that is taken where the directory doesn't say: a long-term release of the catalogue.
const NODE: u64 = 22;
/// The releases that are offered where `engines` rules that one out, in order of preference.
const OTHERS: [u64; 4] = [24, 20, 26, 18];
/// Where an app begins that names no `start` and no `main`.
const ENTRIES: [&str; 14] = [
    "server.js",
    "server.mjs",
    "server.cjs",
    "app.js",
    "app.mjs",
    "index.js",
    "index.mjs",
    "index.cjs",
    "main.js",
    "src/server.js",
    "src/index.js",
    "dist/server.js",
    "dist/index.js",
    "dist/main.js",
];

pub(super) fn node_or_bun(peek: &Peek) -> Option<Detected> {
    let bun = peek.first(&["bun.lock", "bun.lockb", "bunfig.toml"]);
    let package: Value = match peek.text("package.json") {
        Some(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        None if bun.is_some() => Value::Null,
        None => return None,
    };
    let field = |name: &str| package.get(name).and_then(Value::as_str).filter(|s| !s.trim().is_empty());
    let identify = |detected: Detected| {
        let mut detected = detected.identity(field("name"), field("version"), field("description"));
        detected.license = field("license").map(str::to_owned);
        detected
    };
    if let Some(evidence) = bun {
        let entry =
            field("module").or(field("main")).or(peek.first(&["index.ts", "src/index.ts", "server.ts"]));
        let found = identify(Detected::of(peek, Stack::Bun, evidence));
        let out = found.name.to_string();
        let command = format!("bun build --compile --outfile {out} {}", entry.unwrap_or("index.ts"));
        return Some(compiled::one_program(peek, found, &out, &command, true).env("NODE_ENV", "production"));
    }
    let script = package.get("scripts").and_then(|s| s.get("start")).and_then(Value::as_str);
    let main = field("main").map(|m| m.trim_start_matches("./")).filter(|m| peek.is_file(m));
    let entry = main.or(peek.first(&ENTRIES));
    if script.is_none() && entry.is_none() {
        // A front end: its build makes a folder of files, and nothing of it runs on a server.
        if let Some(site) = super::web::static_site(peek) {
            return Some(identify(site));
        }
        if has_python(peek) {
            return None;
        }
    }
    let mut found = identify(Detected::of(peek, Stack::Node, "package.json"));
    let version = version_file(peek).or_else(|| {
        let engines = package.get("engines")?.get("node")?.as_str()?;
        std::iter::once(NODE).chain(OTHERS).find(|major| satisfies(engines, *major))
    });
    found = found.on("node", &version.unwrap_or(NODE).to_string()).env("NODE_ENV", "production");
    let (entrypoint, source) = match script {
        Some(script) => start(peek, script, &mut found),
        None => (entry.map(|e| argv(&["node", e])), entry.map(str::to_owned)),
    };
    found.entrypoint = entrypoint;
    if found.entrypoint.is_none() {
        found
            .notes
            .push("package.json has no start script and no main: write the entrypoint by hand".to_owned());
    }
    let needs = package.get("dependencies").and_then(Value::as_object).is_some_and(|d| !d.is_empty());
    if needs && !peek.is_dir("node_modules") {
        found.notes.push("node_modules isn't there: run npm ci --omit=dev before the build".to_owned());
    }
    if let Some(file) = source.filter(|f| !peek.is_file(f)) {
        found.notes.push(format!("{file} isn't there yet: run the app's own build before ply build"));
    } else if let Some((port, by_variable)) = entrypoint_source(&found).and_then(|f| port_of(&peek.text(f)?))
    {
        if by_variable {
            found = found.env("PORT", &port.to_string());
        }
        found.port = Some(port);
    } else if script.is_some_and(|s| s.starts_with("next ")) {
        found = found.port(3000);
    }
    Some(found)
}

fn has_python(peek: &Peek) -> bool {
    peek.first(&["requirements.txt", "pyproject.toml", "Pipfile"]).is_some()
}

/// The file that `node` is given.
fn entrypoint_source(found: &Detected) -> Option<&str> {
    match &found.entrypoint {
        Some(Entrypoint::Argv(argv)) if argv[0] == "node" => {
            argv[1..].iter().find(|a| !a.starts_with('-')).map(String::as_str)
        }
        _ => None,
    }
}

/// The entrypoint that a start script stands for, and the file that it must find. Variables in front of the
/// command become the app's environment.
fn start(peek: &Peek, script: &str, found: &mut Detected) -> (Option<Entrypoint>, Option<String>) {
    if script.contains(['&', '|', ';', '<', '>', '$', '`', '"', '\'', '(', '*']) {
        if script.contains("npm ") || script.contains("yarn ") || script.contains("pnpm ") {
            found.notes.push("the start script calls a package manager, which is not in the image: write the command itself".to_owned());
        }
        // The programs of dependencies are where npm's own shell finds them.
        let text = format!("PATH=\"$PWD/node_modules/.bin:$PATH\"\n{script}\n");
        return (Some(Entrypoint::Shell(text)), None);
    }
    let mut words: Vec<&str> = script.split_whitespace().collect();
    if words.first() == Some(&"cross-env") {
        words.remove(0);
    }
    while let Some((key, value)) = words.first().and_then(|w| w.split_once('=')) {
        found.env.retain(|(k, _)| k != key);
        found.env.push((key.to_owned(), value.to_owned()));
        words.remove(0);
    }
    match words.as_slice() {
        [] => (None, None),
        ["npm" | "npx" | "yarn" | "pnpm", ..] => {
            found.notes.push(format!("the start script is {script:?}, but package managers are not in the image: write the command itself"));
            (None, None)
        }
        ["node", rest @ ..] => {
            let file = rest.iter().find(|w| !w.starts_with('-'));
            // `node dist/server` finds dist/server.js, and `node .` the folder's main.
            let known = file.filter(|f| {
                let as_module =
                    [".js", ".cjs", ".mjs", "/index.js"].iter().any(|end| peek.is_file(&format!("{f}{end}")));
                !as_module && !peek.is_dir(f)
            });
            (Some(argv(&words)), known.map(|f| (*f).to_owned()))
        }
        [program, rest @ ..] => {
            let program = format!("node_modules/.bin/{program}");
            let mut words = vec![program.as_str()];
            words.extend_from_slice(rest);
            (Some(argv(&words)), None)
        }
    }
}

/// The major version in `.nvmrc` or `.node-version`.
fn version_file(peek: &Peek) -> Option<u64> {
    let text = peek.text(".nvmrc").or_else(|| peek.text(".node-version"))?;
    text.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// Whether some release of Node `major` satisfies an npm range. Only majors are looked at, which is what a range
/// of the manifest can say.
fn satisfies(range: &str, major: u64) -> bool {
    // An operator may stand apart from its version (`>= 18`), and a hyphen with spaces is a range (`18 - 22`).
    let glued = [">= ", "<= ", "> ", "< ", "^ ", "~ ", "= "]
        .iter()
        .fold(range.to_owned(), |text, op| text.replace(op, op.trim_end()));
    glued.split("||").any(|set| {
        if let Some((low, high)) = set.split_once(" - ") {
            let ends = first_number(low).zip(first_number(high));
            return ends.is_some_and(|(low, high)| (low..=high).contains(&major));
        }
        set.split_whitespace().all(|comparator| {
            let digits = comparator.trim_start_matches(['>', '<', '=', '^', '~', 'v']);
            let Some(n) = first_number(digits) else { return matches!(digits, "*" | "x" | "X" | "") };
            // `<20.1` still admits a 20, `<20` and `<20.0.0` don't.
            let at_zero = digits.split('.').skip(1).all(|p| matches!(p, "0" | "x" | "*"));
            match &comparator[..comparator.len() - digits.len()] {
                ">=" => major >= n,
                ">" => major > n || (major == n && digits.contains('.')),
                "<=" => major <= n,
                "<" => major < n || (major == n && !at_zero),
                _ => major == n,
            }
        })
    })
}

fn first_number(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The port of a server's source, and whether `PORT` sets it.
fn port_of(source: &str) -> Option<(u16, bool)> {
    let number_after = |at: usize| {
        let rest = source[at..].trim_start_matches([' ', '(', ')', '"', '\'', ',', '\n', '\t']);
        first_number(rest).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
    };
    if let Some(at) = ["env.PORT", "env['PORT']", "env[\"PORT\"]"]
        .iter()
        .find_map(|v| source.find(v).map(|at| at + v.len()))
    {
        let line_end = source[at..].find('\n').map_or(source.len(), |n| at + n);
        let default = ["||", "??"]
            .iter()
            .find_map(|op| source[at..line_end].find(op))
            .and_then(|n| number_after(at + n + 2));
        return Some((default.unwrap_or(3000), true));
    }
    let at = source.find(".listen(")? + ".listen(".len();
    number_after(at).map(|port| (port, false))
}

pub(super) fn deno(peek: &Peek) -> Option<Detected> {
    let evidence = peek.first(&["deno.json", "deno.jsonc", "deno.lock"])?;
    let config: Value =
        peek.text(evidence).and_then(|t| serde_json::from_str(&t).ok()).unwrap_or(Value::Null);
    let field = |name: &str| config.get(name).and_then(Value::as_str);
    let entry = peek
        .first(&["main.ts", "server.ts", "mod.ts", "index.ts", "src/main.ts", "main.js"])
        .unwrap_or("main.ts");
    let found = Detected::of(peek, Stack::Deno, evidence).identity(field("name"), field("version"), None);
    let out = found.name.to_string();
    let command = format!("deno compile --allow-net --allow-env --allow-read --output {out} {entry}");
    Some(compiled::one_program(peek, found, &out, &command, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_npm_range_is_read_by_its_majors() {
        for (range, yes, no) in [
            (">=18", &[18, 22, 24][..], &[16][..]),
            (">= 18", &[18, 22], &[16]),
            ("^20.1.0", &[20], &[18, 22]),
            ("~20.1", &[20], &[22]),
            ("20.x", &[20], &[22]),
            ("20", &[20], &[2, 22]),
            (">=18 <22", &[18, 20], &[22]),
            ("<22.4", &[22], &[24]),
            ("18 - 20", &[18, 20], &[22]),
            ("18 || >=22", &[18, 22], &[20]),
            ("*", &[18, 22], &[]),
            (">20", &[22], &[20]),
            ("v22.3.0", &[22], &[20]),
        ] {
            for major in yes {
                assert!(satisfies(range, *major), "{range} {major}");
            }
            for major in no {
                assert!(!satisfies(range, *major), "{range} {major}");
            }
        }
    }

    #[test]
    fn the_port_is_read_from_the_source() {
        for (source, expected) in [
            ("app.listen(process.env.PORT || 8080)", Some((8080, true))),
            ("const port = Number(process.env.PORT ?? 3001);\nserver.listen(port)", Some((3001, true))),
            ("const { x } = y; listen(process.env[\"PORT\"])", Some((3000, true))),
            ("app.listen(4000, () => {})", Some((4000, false))),
            ("app.listen(port)", None),
            ("app.listen(99999)", None),
            ("", None),
        ] {
            assert_eq!(port_of(source), expected, "{source}");
        }
    }
}
