//! Python: Django, Flask, FastAPI, and a plain program.

use super::{Detected, Peek, Stack, argv};
use toml_edit::{DocumentMut, Item};

/// The Python of the catalogue's base. The minor version is part of the range, since native code in wheels is
/// built for one.
const PYTHON: &str = "3.13";
/// The port of the servers below, where the app's own source says none.
const PORT: u16 = 8000;

/// What the directory's packaging files say.
struct Project {
    evidence: Option<&'static str>,
    /// Names of requirements, in lower case with `-`.
    requirements: Vec<String>,
    name: Option<String>,
    version: Option<String>,
    description: Option<String>,
    scripts: bool,
}

impl Project {
    fn read(peek: &Peek) -> Self {
        let mut project = Self {
            evidence: None,
            requirements: Vec::new(),
            name: None,
            version: None,
            description: None,
            scripts: false,
        };
        if let Some(text) = peek.text("pyproject.toml") {
            project.evidence = Some("pyproject.toml");
            let document: DocumentMut = text.parse().unwrap_or_default();
            let table =
                document.get("project").or_else(|| document.get("tool").and_then(|t| t.get("poetry")));
            let field =
                |name: &str| table.and_then(|t| t.get(name)).and_then(Item::as_str).map(str::to_owned);
            project.name = field("name");
            project.version = field("version");
            project.description = field("description");
            project.scripts = table.is_some_and(|t| t.get("scripts").is_some());
            match table.and_then(|t| t.get("dependencies")) {
                Some(Item::Value(list)) => {
                    let lines = list.as_array().into_iter().flatten().filter_map(|v| v.as_str());
                    project.requirements.extend(lines.filter_map(requirement));
                }
                Some(Item::Table(table)) => {
                    project.requirements.extend(table.iter().filter_map(|(k, _)| requirement(k)))
                }
                _ => {}
            }
        }
        for file in ["requirements.txt", "Pipfile"] {
            if let Some(text) = peek.text(file) {
                project.evidence.get_or_insert(file);
                project.requirements.extend(text.lines().filter_map(requirement));
            }
        }
        project
    }

    fn has(&self, name: &str) -> bool {
        self.requirements.iter().any(|r| r == name)
    }

    fn identify(&self, detected: Detected) -> Detected {
        detected.identity(self.name.as_deref(), self.version.as_deref(), self.description.as_deref())
    }

    /// Over Debian and Python, with the requirements where they were installed beneath the directory.
    fn on_python(&self, peek: &Peek, detected: Detected) -> Detected {
        let found = self.identify(detected).on("python3", PYTHON).env("PYTHONUNBUFFERED", "1");
        let wanted = self.requirements.iter().any(|r| r != "python");
        match site_packages(peek) {
            Some(folder) => {
                let path = format!("/opt/{}/{folder}", found.name);
                let other = folder
                    .split('/')
                    .find_map(|p| p.strip_prefix("python"))
                    .filter(|minor| *minor != PYTHON)
                    .map(|minor| format!("{folder} is of Python {minor}, and the image has {PYTHON}: native code in wheels would not load"));
                let found = found.env("PYTHONPATH", &path);
                match other {
                    Some(note) => found.note(note),
                    None => found,
                }
            }
            None if wanted => {
                let path = format!("/opt/{}/site-packages", found.name);
                let file = self.evidence.unwrap_or("requirements.txt");
                let what = if file == "requirements.txt" { "-r requirements.txt" } else { "." };
                found.env("PYTHONPATH", &path).note(format!(
                    "the requirements aren't in the directory: run pip install --target site-packages {what} before the build"
                ))
            }
            None => found,
        }
    }
}

/// The name of a requirement line (PEP 508), in lower case with `-`.
fn requirement(line: &str) -> Option<String> {
    let line = line.trim();
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(line.len());
    (end > 0 && !line.starts_with('-')).then(|| line[..end].to_ascii_lowercase().replace(['_', '.'], "-"))
}

/// The folder with installed packages: of a virtual environment, or one that holds their records.
fn site_packages(peek: &Peek) -> Option<String> {
    for environment in [".venv", "venv", "env"] {
        let lib = format!("{environment}/lib");
        for minor in peek.names(&lib).into_iter().filter(|n| n.starts_with("python3")) {
            let folder = format!("{lib}/{minor}/site-packages");
            if peek.is_dir(&folder) {
                return Some(folder);
            }
        }
    }
    ["site-packages", "vendor", "packages", "lib", "libs", "deps"]
        .into_iter()
        .find(|folder| peek.names(folder).iter().any(|n| n.ends_with(".dist-info")))
        .map(str::to_owned)
}

pub(super) fn django(peek: &Peek) -> Option<Detected> {
    let manage = peek.text("manage.py")?;
    let project = Project::read(peek);
    let settings = manage.split("DJANGO_SETTINGS_MODULE").nth(1).and_then(|rest| {
        rest.split(['"', '\'']).find(|word| word.contains('.') && !word.contains(char::is_whitespace))
    });
    let module = settings.and_then(|s| s.split('.').next()).unwrap_or("app");
    let found = project.on_python(peek, Detected::of(peek, Stack::Django, "manage.py"));
    let found = if project.has("gunicorn") {
        let app = format!("{module}.wsgi:application");
        found.start(argv(&["python3", "-m", "gunicorn", &app, "--bind", "0.0.0.0:8000"]))
    } else {
        found
            .start(argv(&["python3", "manage.py", "runserver", "--noreload", "0.0.0.0:8000"]))
            .note("this is Django's development server: add gunicorn to the requirements for production")
    };
    let found = match settings {
        Some(settings) => found.env("DJANGO_SETTINGS_MODULE", settings),
        None => found,
    };
    Some(found.port(PORT))
}

pub(super) fn python(peek: &Peek) -> Option<Detected> {
    let project = Project::read(peek);
    let files = [
        "app.py",
        "main.py",
        "server.py",
        "wsgi.py",
        "asgi.py",
        "run.py",
        "__main__.py",
        "src/main.py",
        "src/app.py",
    ];
    let entry = peek.first(&files);
    let alone = || {
        let mut scripts = peek.top.iter().filter(|n| n.ends_with(".py"));
        scripts.next().filter(|_| scripts.next().is_none()).map(String::as_str)
    };
    if project.evidence.is_none() && entry.is_none() && alone().is_none() {
        return None;
    }
    let source = entry.or_else(alone).map(|e| (e, peek.text(e).unwrap_or_default()));
    let evidence = project.evidence.or(source.as_ref().map(|(e, _)| *e)).unwrap_or("a Python file");
    let module = |file: &str| file.trim_end_matches(".py").replace('/', ".");
    let found = |stack| project.on_python(peek, Detected::of(peek, stack, evidence));

    // The variable that holds the application: `app = Flask(__name__)`.
    let application = |class: &str| {
        let (file, text) = source.as_ref()?;
        let line = text.lines().find(|l| l.contains(&format!("{class}(")) && l.contains('='))?;
        let name = line.split('=').next()?.split(':').next()?.trim();
        let well = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        well.then(|| format!("{}:{name}", module(file)))
    };
    if project.has("flask") || application("Flask").is_some() {
        let app = application("Flask")
            .or_else(|| source.as_ref().map(|(f, _)| format!("{}:app", module(f))))
            .unwrap_or_else(|| "app:app".to_owned());
        let start = if project.has("gunicorn") {
            argv(&["python3", "-m", "gunicorn", &app, "--bind", "0.0.0.0:8000"])
        } else {
            argv(&["python3", "-m", "flask", "--app", &app, "run", "--host", "0.0.0.0", "--port", "8000"])
        };
        return Some(found(Stack::Flask).start(start).port(PORT));
    }
    if let Some(app) = application("FastAPI").or_else(|| application("Starlette"))
        && (project.has("uvicorn") || project.has("fastapi"))
    {
        let start = argv(&["python3", "-m", "uvicorn", &app, "--host", "0.0.0.0", "--port", "8000"]);
        return Some(found(Stack::Python).start(start).port(PORT));
    }
    let found = found(Stack::Python);
    let Some((file, text)) = source else {
        let note = if project.scripts {
            "pyproject.toml declares scripts: write the entrypoint as [\"python3\", \"-m\", MODULE]"
        } else {
            "no file that it starts with was found: write the entrypoint by hand"
        };
        return Some(found.note(note));
    };
    let found = found.start(argv(&["python3", file]));
    Some(match port_of(&text) {
        Some((port, true)) => found.env("PORT", &port.to_string()).port(port),
        Some((port, false)) => found.port(port),
        None => found,
    })
}

/// The port of a server's source, and whether `PORT` sets it.
fn port_of(source: &str) -> Option<(u16, bool)> {
    let number = |text: &str| {
        let digits: String =
            text.chars().skip_while(|c| " (),\"'".contains(*c)).take_while(char::is_ascii_digit).collect();
        digits.parse::<u16>().ok().filter(|n| *n > 0)
    };
    for name in ["\"PORT\"", "'PORT'"] {
        if let Some(at) = source.find(name) {
            return Some((number(&source[at + name.len()..]).unwrap_or(PORT), true));
        }
    }
    for sign in
        ["port=", "port = ", "PORT = ", "HTTPServer((\"\",", "HTTPServer((\"0.0.0.0\",", "HTTPServer(('',"]
    {
        if let Some(port) = source.find(sign).and_then(|at| number(&source[at + sign.len()..])) {
            return Some((port, false));
        }
    }
    None
}
