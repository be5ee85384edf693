//! Whether the program of an entrypoint is in the image, told before anything is mounted. Pure.

use crate::RunError;
use crate::rootfs::Rootfs;
use ply_manifest::{ImageName, nearest};

/// What is wrong with an entrypoint that is none.
const FOLDER: &str = "is a folder";

/// Looks for `program` as execve(2) would in the box. What a volume or a link covers can't be known here.
pub(crate) fn check(
    program: &str,
    path: &str,
    workdir: &str,
    image: &ImageName,
    root: &dyn Rootfs,
    covered: &dyn Fn(&str) -> bool,
) -> Result<(), RunError> {
    let candidates: Vec<String> = if program.contains('/') {
        let relative = program.trim_start_matches("./");
        vec![if program.starts_with('/') { program.to_owned() } else { format!("{workdir}/{relative}") }]
    } else {
        path.split(':').map(|dir| format!("{}/{program}", dir.trim_end_matches('/'))).collect()
    };
    if program.is_empty() {
        return Err(RunError::usage("the entrypoint names no program", "write one as its first word"));
    }
    let mut found_but = None;
    for candidate in &candidates {
        if covered(candidate) {
            return Ok(());
        }
        match root.stat(candidate) {
            Some(meta) if meta.is_dir => found_but = found_but.or(Some((candidate, FOLDER))),
            Some(meta) if meta.mode & 0o111 == 0 => {
                found_but = found_but.or(Some((candidate, "is not marked as executable")));
            }
            Some(_) => return Ok(()),
            None => {}
        }
    }
    if let Some((file, why)) = found_but {
        let hint = if why == FOLDER {
            "name a program in it, as the entrypoint in ply.toml or with --entrypoint"
        } else {
            "mark it in the app's folder: chmod +x; or name another with --entrypoint"
        };
        return Err(RunError::NotExecutable {
            message: format!("the entrypoint can't be executed: {file} {why} in {image}"),
            hint: Some(hint.to_owned()),
        });
    }
    let mut names: Vec<String> = Vec::new();
    for candidate in &candidates {
        let (dir, _) = candidate.rsplit_once('/').unwrap_or(("", candidate));
        names.extend(root.list(if dir.is_empty() { "/" } else { dir }));
    }
    names.sort();
    names.dedup();
    let wanted = program.rsplit('/').next().unwrap_or(program);
    let hint = match nearest(wanted, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None if program.contains('/') => "look inside with ply inspect".to_owned(),
        None if program == "sh" || program == "bash" => "a base brings a shell: [build] base".to_owned(),
        None => format!("PATH is {path}; a dependency may bring it: ply search {wanted}"),
    };
    let hint = if program == "/bin/sh" && root.stat("/bin/sh").is_none() {
        "a base brings /bin/sh: [build] base = \"debian@13\"; or write the entrypoint as a list".to_owned()
    } else {
        hint
    };
    Err(RunError::NoEntrypoint {
        message: format!("the entrypoint isn't in {image}: {program}"),
        hint: Some(hint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rootfs::fake::FakeRoot;

    fn check_in(program: &str, covered: bool) -> Result<(), (u8, String, Option<String>)> {
        let root = FakeRoot::with(&[
            ("/usr/bin/node", 0o755, ""),
            ("/usr/bin/data", 0o644, ""),
            ("/opt/app/run.sh", 0o755, ""),
            ("/opt/app/server.js", 0o644, ""),
        ]);
        let image = "app-1.0.0-linux-x64.img".parse().unwrap();
        check(program, "/usr/bin:/bin", "/opt/app", &image, &root, &|_| covered)
            .map_err(|e| (e.exit_code(), e.to_string(), e.hint()))
    }

    #[test]
    fn a_program_is_found_by_path_or_name_or_told_apart() {
        for fine in ["node", "/usr/bin/node", "./run.sh", "/opt/app/run.sh"] {
            assert!(check_in(fine, false).is_ok(), "{fine}");
        }
        let (code, message, hint) = check_in("nod", false).unwrap_err();
        assert_eq!((code, message.as_str()), (127, "the entrypoint isn't in app-1.0.0-linux-x64.img: nod"));
        assert_eq!(hint.as_deref(), Some("did you mean \"node\"?"));
        let (code, message, _) = check_in("./server.js", false).unwrap_err();
        assert_eq!(code, 126);
        assert_eq!(
            message,
            "the entrypoint can't be executed: /opt/app/server.js is not marked as executable in app-1.0.0-linux-x64.img"
        );
        let (code, _, hint) = check_in("/opt/app", false).unwrap_err();
        assert_eq!((code, hint.unwrap().contains("chmod")), (126, false));
        assert!(check_in("/bin/sh", false).unwrap_err().2.unwrap().starts_with("a base brings /bin/sh"));
        assert!(check_in("/linked/tool", true).is_ok());
    }
}
