use super::*;
use ply_manifest::{Arch, Manifest};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// An ELF header that asks for a loader or for none, enough to be recognised.
fn program(dynamic: bool) -> Vec<u8> {
    let machine: u16 = if Arch::HOST == Arch::X64 { 62 } else { 183 };
    let mut elf = vec![0; 64 + 56 + 32];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    elf[16..18].copy_from_slice(&2_u16.to_le_bytes());
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    elf[20..24].copy_from_slice(&1_u32.to_le_bytes());
    elf[24..32].copy_from_slice(&0x40_0000_u64.to_le_bytes());
    elf[32..40].copy_from_slice(&64_u64.to_le_bytes());
    elf[52..54].copy_from_slice(&64_u16.to_le_bytes());
    elf[54..56].copy_from_slice(&56_u16.to_le_bytes());
    elf[56..58].copy_from_slice(&u16::from(dynamic).to_le_bytes());
    if dynamic {
        elf[64..68].copy_from_slice(&3_u32.to_le_bytes());
        elf[72..80].copy_from_slice(&120_u64.to_le_bytes());
        elf[96..104].copy_from_slice(&16_u64.to_le_bytes());
        elf[120..134].copy_from_slice(b"/lib64/ld.so.2");
    }
    elf
}

/// Makes the files in a folder of the given name, detects, and shows everything; the manifest must parse.
fn shown(folder: &str, files: &[(&str, &str)]) -> String {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join(folder);
    fs::create_dir(&dir).unwrap();
    for (path, content) in files {
        let full = dir.join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        match *content {
            "<static>" | "<dynamic>" => {
                fs::write(&full, program(*content == "<dynamic>")).unwrap();
                fs::set_permissions(&full, fs::Permissions::from_mode(0o755)).unwrap();
            }
            text => fs::write(&full, text).unwrap(),
        }
    }
    let detected = detect(&dir).unwrap();
    let text = init_manifest(&detected);
    let manifest = Manifest::parse(&text, "ply.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(manifest.run.entrypoint, detected.entrypoint);
    assert_eq!(manifest.package.name, detected.name);
    assert_eq!(manifest.run.env, detected.env);
    assert_eq!(manifest.build.include, detected.include);
    let mut out = format!("{} (by {})\n", detected.stack, detected.evidence);
    for note in &detected.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    format!("{out}---\n{text}")
}

macro_rules! detected {
    ($($test:ident: $folder:literal { $($path:literal: $content:expr),* $(,)? })*) => {$(
        #[test]
        fn $test() {
            insta::assert_snapshot!(shown($folder, &[$(($path, $content)),*]));
        }
    )*};
}

detected! {
    node_with_a_start_script: "My App 2" {
        "package.json": r#"{"name":"@acme/Web","version":"2.3.4","description":"The  \"web\"\nfront","license":"MIT",
            "engines":{"node":">=20"},"scripts":{"start":"NODE_OPTIONS=--enable-source-maps node server.js --fast"},
            "dependencies":{"express":"5"}}"#,
        "server.js": "const port = process.env.PORT || 8080\napp.listen(port)\n",
    }
    node_by_main: "svc" {
        "package.json": r#"{"main":"./lib/app.js","engines":{"node":"^24"}}"#,
        "lib/app.js": "http.createServer().listen(4000)",
        "node_modules/.keep": "",
    }
    node_by_a_known_file: "x" { "package.json": "{}", "index.js": "console.log(1)" }
    node_before_its_build: "api" {
        "package.json": r#"{"scripts":{"start":"node dist/main.js"}}"#,
        ".nvmrc": "v20.11.1\n",
    }
    node_with_a_program_of_a_dependency: "next-app" {
        "package.json": r#"{"scripts":{"start":"next start"},"dependencies":{"next":"15"}}"#,
        "node_modules/next/package.json": "{}",
    }
    node_with_a_shell_line: "x" {
        "package.json": r#"{"scripts":{"start":"npm run migrate && node server.js"}}"#,
        "server.js": "",
    }
    node_that_starts_by_a_package_manager: "x" { "package.json": r#"{"scripts":{"start":"npm run serve"}}"# }
    node_without_a_start: "x" { "package.json": "{}", "lib.js": "" }
    node_with_a_broken_package_json: "x" { "package.json": "{", "server.js": "" }
    a_front_end: "shop" {
        "package.json": r#"{"name":"shop","version":"1.0.0","scripts":{"build":"vite build"}}"#,
        "index.html": "<script src=/src/main.ts>",
    }
    a_front_end_that_was_built: "shop" {
        "package.json": r#"{"name":"shop","scripts":{"build":"vite build"}}"#,
        "index.html": "", "dist/index.html": "<h1>hi",
    }
    bun: "bot" { "bun.lock": "", "package.json": r#"{"name":"bot","version":"1.0.0","module":"index.ts"}"#, "index.ts": "" }
    deno: "fresh" { "deno.json": r#"{"name":"@me/fresh","version":"0.3.0"}"#, "main.ts": "" }
    django: "site" {
        "manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')",
        "requirements.txt": "Django>=5\n# servers\ngunicorn==23\n",
        ".venv/lib/python3.11/site-packages/django/__init__.py": "",
        "package.json": "{}",
    }
    django_without_a_server: "site" {
        "manage.py": "os.environ.setdefault(\"DJANGO_SETTINGS_MODULE\", \"config.settings.dev\")",
        "requirements.txt": "django\n",
    }
    flask: "hello" { "app.py": "from flask import Flask\nweb = Flask(__name__)\n", "requirements.txt": "flask~=3.0\n" }
    flask_with_gunicorn: "hello" {
        "pyproject.toml": "[project]\nname = \"Hello_Web\"\nversion = \"1.2.0\"\ndescription = \"hi\"\ndependencies = [\"Flask[async]>=3\", \"gunicorn\"]\n",
        "wsgi.py": "app: Flask = Flask('x')\n",
        "site-packages/flask-3.0.dist-info/METADATA": "",
    }
    fastapi: "api" { "main.py": "app = FastAPI(title='x')\n", "requirements.txt": "fastapi[standard]\nuvicorn\n" }
    python_with_a_port: "srv" { "server.py": "port = int(os.environ.get(\"PORT\", \"9000\"))\n" }
    python_alone: "job" { "backup.py": "print('x')" }
    python_package_with_scripts: "tool" { "pyproject.toml": "[project]\nname='tool'\n[project.scripts]\ntool='tool:main'\n" }
    go_before_its_build: "src" { "go.mod": "module example.com/acme/gate/v2\n\ngo 1.24\n", "main.go": "package main" , "static/a.css": "" }
    go_built: "gate" { "go.mod": "module gate\n", "gate": "<static>" }
    go_with_c: "gate" { "go.mod": "module gate\n", "cmd/gate/main.go": "", "gate": "<dynamic>" }
    rust: "tool" {
        "Cargo.toml": "[package]\nname = \"my_tool\"\nversion = \"0.4.2\"\nlicense = \"MIT\"\n",
        "target/release/my_tool": "<dynamic>",
    }
    rails: "blog" { "Gemfile": "gem \"rails\"", "bin/rails": "", "config.ru": "", "package.json": "{}" }
    rack: "rack" { "config.ru": "run App", "Gemfile": "gem 'puma'", "vendor/bundle/x": "" }
    ruby: "rb" { "app.rb": "puts 1" }
    maven: "shop" {
        "pom.xml": "<project><parent><artifactId>spring-boot-starter-parent</artifactId><version>3.3.0</version></parent>\n<artifactId>orders</artifactId><version>1.4.0</version></project>",
    }
    gradle_built: "shop" {
        "build.gradle.kts": "plugins { java }",
        "build/libs/shop-1.0-plain.jar": "", "build/libs/shop-1.0.jar": "",
    }
    a_jar: "lib" { "app.jar": "", "app-sources.jar": "" }
    laravel: "crm" { "artisan": "", "composer.json": r#"{"name":"acme/crm","require":{"php":"^8.2","laravel/framework":"^11"}}"#, "public/index.php": "", "package.json": "{}" }
    php: "old" { "index.php": "<?php" }
    a_site: "Landing Page" { "index.html": "<h1>", "style.css": "" }
    a_site_in_a_folder: "docs" { "public/index.html": "<h1>" }
    a_static_program: "server" { "server": "<static>", "data.txt": "" }
    a_dynamic_program: "srv" { "bin/srv": "<dynamic>", "bin/aaa": "<dynamic>" }
    nothing_known: "---" { "notes.txt": "" }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    assert_eq!(detect(&temp.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn texts_of_a_hostile_directory_come_out_quoted() {
    let package = r#"{"description":"a\"b\\c\u0007 '''","license":"x\ny","scripts":{"start":"node 'a b.js' '''\u0001"}}"#;
    let text = shown("q", &[("package.json", package)]);
    assert!(text.contains(r#"description = "a\"b\\c '''""#), "{text}");
}

proptest::proptest! {
    #[test]
    fn whatever_is_in_the_files_the_manifest_parses(
        package in ".{0,80}", start in ".{1,40}", name in ".{0,20}", python in ".{0,80}", which in 0..4
    ) {
        let package = match which {
            0 => package,
            _ => serde_json::json!({"name": name, "description": package, "scripts": {"start": start}}).to_string(),
        };
        let requirements = format!("flask\n{python}");
        let files = [("package.json", package.as_str()), ("app.py", &python), ("requirements.txt", &requirements)];
        // `shown` asserts that the manifest parses to what was detected.
        shown("x", if which == 3 { &files[1..] } else { &files[..] });
    }
}
