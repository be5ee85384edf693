//! PHP, Ruby, and sites that are only files.

use super::{Detected, Peek, Stack, argv, debian, package};
use serde_json::Value;

pub(super) fn php(peek: &Peek) -> Option<Detected> {
    let evidence = peek.first(&["artisan", "composer.json", "index.php", "public/index.php"])?;
    let composer: Value =
        peek.text("composer.json").and_then(|t| serde_json::from_str(&t).ok()).unwrap_or(Value::Null);
    let field = |name: &str| composer.get(name).and_then(Value::as_str);
    let found = Detected::of(peek, Stack::Php, evidence)
        .identity(field("name"), field("version"), field("description"))
        .on("php", "8");
    let needs =
        composer.get("require").and_then(Value::as_object).is_some_and(|r| r.keys().any(|k| k.contains('/')));
    let found = if needs && !peek.is_dir("vendor") {
        found.note("vendor isn't there: run composer install --no-dev before the build")
    } else {
        found
    };
    let found = if evidence == "artisan" {
        found.env("APP_ENV", "production").start(argv(&[
            "php",
            "artisan",
            "serve",
            "--host=0.0.0.0",
            "--port=8000",
        ]))
    } else if peek.is_file("public/index.php") {
        found.start(argv(&["php", "-S", "0.0.0.0:8000", "-t", "public", "public/index.php"]))
    } else if peek.is_file("index.php") {
        found.start(argv(&["php", "-S", "0.0.0.0:8000", "-t", "."]))
    } else {
        return Some(found.note("no index.php was found: write the entrypoint by hand"));
    };
    Some(
        found
            .port(8000)
            .note("this is PHP's built-in server, which answers one request at a time by default"),
    )
}

pub(super) fn ruby(peek: &Peek) -> Option<Detected> {
    let files = ["app.rb", "main.rb", "server.rb"];
    let evidence = peek.first(&["Gemfile", "config.ru"]).or(peek.first(&files))?;
    let gems = peek.text("Gemfile").unwrap_or_default();
    let has = |gem: &str| gems.contains(&format!("\"{gem}\"")) || gems.contains(&format!("'{gem}'"));
    let mut found = Detected::of(peek, Stack::Ruby, evidence).on("ruby", "3");
    let bundled = peek.is_file("Gemfile");
    if bundled {
        found = found.env("BUNDLE_PATH", "vendor/bundle").env("BUNDLE_WITHOUT", "development:test");
        if !peek.is_dir("vendor/bundle") {
            let note = "the gems aren't in the directory: run bundle config set --local path vendor/bundle && bundle install before the build";
            found = found.note(note);
        }
    }
    let start = |words: &[&str]| {
        let in_bundle = ["ruby", "-rbundler/setup"];
        let mut all = if bundled { in_bundle.to_vec() } else { vec!["ruby"] };
        all.extend_from_slice(words);
        argv(&all)
    };
    Some(if peek.is_file("bin/rails") {
        found
            .env("RAILS_ENV", "production")
            .env("RAILS_LOG_TO_STDOUT", "1")
            .start(argv(&["ruby", "bin/rails", "server", "-b", "0.0.0.0", "-p", "3000"]))
            .port(3000)
    } else if peek.is_file("config.ru") {
        let found = found.env("RACK_ENV", "production").port(9292);
        if has("puma") {
            found.start(start(&["-S", "puma", "-b", "tcp://0.0.0.0:9292"]))
        } else {
            found.start(start(&["-S", "rackup", "--host", "0.0.0.0", "--port", "9292"]))
        }
    } else if let Some(file) = peek.first(&files) {
        found.start(start(&[file]))
    } else {
        found.note("no file that it starts with was found: write the entrypoint by hand")
    })
}

/// Files that a small web server hands out. Also what a front end's build makes.
pub(super) fn static_site(peek: &Peek) -> Option<Detected> {
    let folders = ["dist", "build", "out", "_site", "public", "www", "site", "html"];
    let built = || folders.into_iter().find(|f| peek.is_file(&format!("{f}/index.html")));
    let front_end = peek.is_file("package.json");
    // A front end's own index.html is the source of its build.
    let (folder, evidence) = match built() {
        Some(folder) if front_end || !peek.is_file("index.html") => (folder, format!("{folder}/index.html")),
        _ if front_end && peek.text("package.json").is_some_and(|t| t.contains("\"build\"")) => {
            ("dist", "package.json".to_owned())
        }
        _ if peek.is_file("index.html") => ("", "index.html".to_owned()),
        _ => return None,
    };
    let mut found = Detected::of(peek, Stack::StaticSite, &evidence);
    found.base = Some(debian());
    found.dependencies.push(package("busybox", "1"));
    if !folder.is_empty() {
        found.include.push(format!("{folder}/"));
        if !peek.is_dir(folder) {
            found.notes.push(format!("{folder} isn't there yet: run the site's own build before ply build"));
        }
    }
    // Relative to the app's own folder, which is where it starts.
    let root = if folder.is_empty() { "." } else { folder };
    Some(found.start(argv(&["busybox", "httpd", "-f", "-p", "8080", "-h", root])).port(8080))
}
