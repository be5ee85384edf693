//! Whether an entrypoint can start, as far as the files tell: its program is there, executable, for this processor,
//! and what it names in turn (an interpreter, a loader, the script that it is given) is there too. At a build this
//! is a notice, at a check an error; a run refuses.

use crate::elf;
use ply_image::{ImageError, LayerStack};
use ply_manifest::{Arch, Entrypoint, Kind, Manifest, nearest};
use std::path::{Component, Path, PathBuf};

/// Where programs are looked for behind what the app and its layers say: what the base has.
const BASE_PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The app's own folders of programs, beneath its home, as a run has them.
pub(crate) const OWN_FOLDERS: [&str; 3] = ["bin", "sbin", "node_modules/.bin"];

/// The largest program that is looked into, in bytes.
const LOOK: u64 = 64 << 20;

/// Programs whose first argument is a script.
const INTERPRETERS: [&str; 5] = ["node", "python3", "python", "ruby", "php"];

/// One thing that keeps an entrypoint from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// One sentence.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

/// What keeps the entrypoint of `manifest` from starting in `stack`. `layers` are the manifests of the packages in
/// it, in layer order; `app_on_top` says whether the app's own image is in the stack, on top.
pub(crate) fn problem(
    manifest: &Manifest,
    arch: Arch,
    stack: &LayerStack,
    layers: &[&Manifest],
    app_on_top: bool,
) -> Result<Option<Problem>, ImageError> {
    let Some(entrypoint) = &manifest.run.entrypoint else { return Ok(None) };
    let look = Look { manifest, arch, stack, app_on_top, dirs: program_dirs(manifest, layers) };
    match entrypoint {
        Entrypoint::Shell(_) if look.stack.stat("/bin/sh")?.is_none() => Ok(Some(Problem {
            message: "the entrypoint is a text for /bin/sh, which is not in the image".to_owned(),
            hint: Some("set a base: base = \"debian@13\"; or write the entrypoint as a list".to_owned()),
        })),
        Entrypoint::Shell(_) => Ok(None),
        Entrypoint::Argv(argv) => look.at(argv),
    }
}

/// The folders in which a run looks for programs, in order.
pub(crate) fn program_dirs(manifest: &Manifest, layers: &[&Manifest]) -> Vec<PathBuf> {
    let home = PathBuf::from(format!("/opt/{}", manifest.package.name));
    let own = OWN_FOLDERS.iter().map(|folder| home.join(folder));
    let own_layer = manifest.layer.path.iter();
    let below = layers.iter().flat_map(|m| &m.layer.path);
    let mut dirs: Vec<PathBuf> = own.chain(own_layer.chain(below).map(PathBuf::from)).collect();
    let set = manifest.run.env.iter().find(|(key, _)| key == "PATH").map(|(_, value)| value.as_str());
    let set = set.unwrap_or("").split(':').filter(|p| p.starts_with('/'));
    dirs.extend(set.map(PathBuf::from));
    dirs.extend(BASE_PATH.iter().map(PathBuf::from));
    dirs
}

struct Look<'a> {
    manifest: &'a Manifest,
    arch: Arch,
    stack: &'a LayerStack,
    app_on_top: bool,
    dirs: Vec<PathBuf>,
}

impl Look<'_> {
    fn at(&self, argv: &[String]) -> Result<Option<Problem>, ImageError> {
        let Some(program) = argv.first() else { return Ok(None) };
        let path = if program.contains('/') {
            let path = self.in_workdir(program);
            match self.stack.stat(&path)? {
                None => return self.not_there(program, &path).map(Some),
                Some(stat) if !stat.is_file() => {
                    return Ok(Some(problem_only(format!("the entrypoint's program is no file: {program}"))));
                }
                Some(stat) if stat.mode & 0o111 == 0 => {
                    let hint = format!(
                        "make it executable before the build: chmod +x {}",
                        program.trim_start_matches("./")
                    );
                    let message = format!("the entrypoint's program is not executable: {program}");
                    return Ok(Some(Problem { message, hint: Some(hint) }));
                }
                Some(_) => path,
            }
        } else {
            match self.stack.find_program(program, &self.dirs)? {
                Some(path) => path,
                None => return self.not_found(program).map(Some),
            }
        };
        if let Some(problem) = self.program(program, &path)? {
            return Ok(Some(problem));
        }
        self.script(argv)
    }

    /// A path as the app sees it: relative to its working folder, without `.` and `..`.
    fn in_workdir(&self, path: &str) -> PathBuf {
        let default = match self.manifest.kind() {
            Kind::Base => "/".to_owned(),
            _ => format!("/opt/{}", self.manifest.package.name),
        };
        let mut out = PathBuf::new();
        for part in
            Path::new(self.manifest.run.workdir.as_deref().unwrap_or(&default)).join(path).components()
        {
            match part {
                Component::ParentDir => {
                    out.pop();
                }
                Component::CurDir => {}
                part => out.push(part),
            }
        }
        out
    }

    fn not_there(&self, program: &str, path: &Path) -> Result<Problem, ImageError> {
        let names = match path.parent() {
            Some(folder) => self.stack.read_dir(folder)?.unwrap_or_default(),
            None => Vec::new(),
        };
        let names: Vec<String> = names.iter().map(|e| e.name.to_string_lossy().into_owned()).collect();
        let wanted = path.file_name().unwrap_or_default().to_string_lossy();
        let near = nearest(&wanted, names.iter().map(String::as_str));
        let prefix = program.rsplit_once('/').map_or("", |(folder, _)| folder);
        let hint = match near {
            Some(near) => format!("did you mean \"{prefix}/{near}\"?"),
            None => "build it first, and see that [build] include has it".to_owned(),
        };
        Ok(Problem {
            message: format!("the entrypoint's program is not in the image: {program}"),
            hint: Some(hint),
        })
    }

    fn not_found(&self, program: &str) -> Result<Problem, ImageError> {
        let names = self.stack.programs(&self.dirs)?;
        let names: Vec<String> = names.into_iter().filter_map(|n| n.into_string().ok()).collect();
        let hint = match nearest(program, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if self.stack.stat(self.in_workdir(program))?.is_some_and(|s| s.is_file()) => {
                format!("a program in the app's own folder is written \"./{program}\"")
            }
            None => format!("add the package that brings it: ply search {program}"),
        };
        let message = format!("the entrypoint's program is not in the image: {program}");
        Ok(Problem { message, hint: Some(hint) })
    }

    /// What is wrong with the program itself. Only the app's own is looked into: packages are used by many.
    fn program(&self, shown: &str, path: &Path) -> Result<Option<Problem>, ImageError> {
        let Some(found) = self.stack.resolve(path)? else { return Ok(None) };
        if !self.app_on_top || found.layer != 0 || found.stat.size > LOOK {
            return Ok(None);
        }
        let Some(data) = self.stack.read(&found.path, LOOK)? else { return Ok(None) };
        if let Some(line) = data.strip_prefix(b"#!") {
            return self.interpreter(shown, line);
        }
        let Some(facts) = elf::facts(&data) else {
            let message = format!(
                "the entrypoint's program is neither a script with #! nor a program for Linux: {shown}"
            );
            return Ok(Some(problem_only(message)));
        };
        if facts.machine != self.arch.as_str() {
            let message = format!(
                "the entrypoint's program is for {}, the image for {}: {shown}",
                facts.machine, self.arch
            );
            let hint = format!("compile it for {}, or build with --arch {}", self.arch, facts.machine);
            return Ok(Some(Problem { message, hint: Some(hint) }));
        }
        match facts.interpreter {
            Some(loader) if self.stack.stat(&loader)?.is_none() => Ok(Some(Problem {
                message: format!(
                    "{shown} is linked dynamically and asks for {loader}, which is not in the image"
                ),
                hint: Some(if loader.contains("musl") {
                    "link it statically".to_owned()
                } else {
                    "set a base: base = \"debian@13\"; or link it statically".to_owned()
                }),
            })),
            _ => Ok(None),
        }
    }

    fn interpreter(&self, shown: &str, line: &[u8]) -> Result<Option<Problem>, ImageError> {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        if text.ends_with('\r') {
            let message = format!(
                "the first line of {shown} ends in a carriage return, so its interpreter is never found"
            );
            return Ok(Some(Problem { message, hint: Some("save it with Unix line ends".to_owned()) }));
        }
        let mut words = text.split_whitespace();
        let Some(interpreter) = words.next() else { return Ok(None) };
        let missing = if self.stack.stat(interpreter)?.is_none() {
            Some(interpreter)
        } else if interpreter.ends_with("/env") {
            match words.find(|w| !w.starts_with('-') && !w.contains('=')) {
                Some(program) if self.stack.find_program(program, &self.dirs)?.is_none() => Some(program),
                _ => None,
            }
        } else {
            None
        };
        Ok(missing.map(|missing| Problem {
            message: format!("{shown} starts with #!{}, and {missing} is not in the image", text.trim()),
            hint: Some("set a base or add the package that brings it".to_owned()),
        }))
    }

    /// The script that an interpreter is given.
    fn script(&self, argv: &[String]) -> Result<Option<Problem>, ImageError> {
        let name = argv[0].rsplit('/').next().unwrap_or_default();
        let is_jar = name == "java" && argv.get(1).is_some_and(|a| a == "-jar");
        let script = match argv.get(if is_jar { 2 } else { 1 }) {
            Some(script) if is_jar || INTERPRETERS.contains(&name) => script,
            _ => return Ok(None),
        };
        // `node dist/server` finds dist/server.js; a name with an ending is meant as it is.
        let whole =
            [".js", ".mjs", ".cjs", ".py", ".rb", ".php", ".jar"].iter().any(|end| script.ends_with(end));
        if !whole || script.starts_with('-') || self.stack.stat(self.in_workdir(script))?.is_some() {
            return Ok(None);
        }
        let mut problem = self.not_there(script, &self.in_workdir(script))?;
        problem.message = format!("the entrypoint starts a file that is not in the image: {script}");
        problem.hint = problem.hint.map(|h| h.replace("\"/", "\""));
        Ok(Some(problem))
    }
}

fn problem_only(message: String) -> Problem {
    Problem { message, hint: None }
}

#[cfg(test)]
#[path = "entrypoint_tests.rs"]
mod tests;
