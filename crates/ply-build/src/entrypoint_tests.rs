use super::*;
use ply_image::{Attr, Image, LEVEL_IMPORT, PackOptions, Source, Tree, pack};
use std::fs::File;

/// An image of these files; `path*` is executable, a content `-> x` is a symlink.
fn image(temp: &Path, name: &str, files: &[(&str, &[u8])]) -> Image {
    let mut tree = Tree::new();
    for (path, content) in files {
        let (path, mode) = match path.strip_suffix('*') {
            Some(path) => (path, 0o755),
            None => (*path, 0o644),
        };
        match content.strip_prefix(b"-> ") {
            Some(target) => {
                tree.add_symlink(path, std::str::from_utf8(target).unwrap(), Attr::mode(0o777)).unwrap();
            }
            None => tree.add_file(path, Source::Bytes(content.to_vec()), Attr::mode(mode)).unwrap(),
        }
    }
    let at = temp.join(name);
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&at).unwrap();
    pack(&tree, &PackOptions::new(LEVEL_IMPORT), &mut file).unwrap();
    Image::open(at).unwrap()
}

fn elf(machine: u16) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    elf[16..18].copy_from_slice(&2_u16.to_le_bytes());
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    elf
}

fn said(run: &str, files: &[(&str, &[u8])]) -> String {
    let temp = tempfile::tempdir().unwrap();
    let text = format!(
        "[package]\nname=\"shop\"\nversion=\"1.0.0\"\n[build]\nbase=\"debian@13\"\n[build.dependencies]\nnode=\"22\"\n[run]\n{run}\n"
    );
    let manifest = Manifest::parse(&text, "ply.toml").unwrap();
    let node = "[package]\nname=\"node\"\nversion=\"22.0.0\"\n[layer]\npath=[\"/opt/node-22.0.0/bin\"]\n";
    let node = Manifest::parse(node, "node").unwrap();
    let layers: [(&str, &[u8]); 4] = [
        ("opt/node-22.0.0/bin/node*", b"x"),
        ("usr/bin/bash*", b"x"),
        ("usr/bin/env*", b"x"),
        ("bin", b"-> usr/bin"),
    ];
    let files: Vec<(String, &[u8])> = files.iter().map(|(p, c)| (format!("opt/shop/{p}"), *c)).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(p, c)| (p.as_str(), *c)).collect();
    let stack = LayerStack::new(vec![image(temp.path(), "app", &files), image(temp.path(), "rest", &layers)]);
    match problem(&manifest, Arch::X64, &stack, &[&node], true).unwrap() {
        None => "well".to_owned(),
        Some(Problem { message, hint: None }) => message,
        Some(Problem { message, hint: Some(hint) }) => format!("{message} / {hint}"),
    }
}

#[test]
fn what_can_start_is_well() {
    for (entrypoint, path, content) in [
        ("entrypoint=[\"node\",\"server.js\"]", "server.js", &b""[..]),
        ("entrypoint=[\"node\",\"--flag\"]", "x", b""),
        ("entrypoint=[\"node\",\"dist/server\"]", "dist/server.js", b""),
        ("entrypoint=[\"./run\"]", "run*", b"#!/bin/bash\n"),
        ("entrypoint=[\"./run\"]", "run*", b"#!/usr/bin/env -S node --x\n"),
        ("entrypoint=[\"./run\"]", "run*", &elf(62)),
        ("entrypoint=[\"../shop/./run\"]", "run*", &elf(62)),
        ("entrypoint=[\"run\"]", "bin/run*", &elf(62)),
        ("entrypoint=[\"bash\"]", "x", b""),
        ("entrypoint=[\"/bin/bash\"]", "x", b""),
    ] {
        assert_eq!(said(entrypoint, &[(path, content)]), "well", "{entrypoint}");
    }
}

#[test]
fn what_can_not_start_is_named_with_what_to_do() {
    for (entrypoint, path, content, expected) in [
        (
            "[\"nod\",\"x\"]",
            "x",
            &b""[..],
            "the entrypoint's program is not in the image: nod / did you mean \"node\"?",
        ),
        (
            "[\"imagemagick\"]",
            "x",
            b"",
            "the entrypoint's program is not in the image: imagemagick / add the package that brings it: ply search imagemagick",
        ),
        (
            "[\"startup\"]",
            "startup*",
            b"",
            "the entrypoint's program is not in the image: startup / a program in the app's own folder is written \"./startup\"",
        ),
        (
            "[\"./srever\"]",
            "server*",
            b"",
            "the entrypoint's program is not in the image: ./srever / did you mean \"./server\"?",
        ),
        (
            "[\"./run\"]",
            "run",
            b"#!/bin/bash\n",
            "the entrypoint's program is not executable: ./run / make it executable before the build: chmod +x run",
        ),
        ("[\"./run\"]", "run/x", b"", "the entrypoint's program is no file: ./run"),
        (
            "[\"./run\"]",
            "run*",
            b"#!/bin/zsh -e\n",
            "./run starts with #!/bin/zsh -e, and /bin/zsh is not in the image / set a base or add the package that brings it",
        ),
        (
            "[\"./run\"]",
            "run*",
            b"#!/usr/bin/env python3\n",
            "./run starts with #!/usr/bin/env python3, and python3 is not in the image / set a base or add the package that brings it",
        ),
        (
            "[\"./run\"]",
            "run*",
            b"#!/bin/bash\r\nls\r\n",
            "the first line of ./run ends in a carriage return, so its interpreter is never found / save it with Unix line ends",
        ),
        (
            "[\"./run\"]",
            "run*",
            b"echo hi\n",
            "the entrypoint's program is neither a script with #! nor a program for Linux: ./run",
        ),
        (
            "[\"./run\"]",
            "run*",
            &elf(183),
            "the entrypoint's program is for arm64, the image for x64: ./run / compile it for x64, or build with --arch arm64",
        ),
        (
            "[\"node\",\"sever.js\"]",
            "server.js",
            b"",
            "the entrypoint starts a file that is not in the image: sever.js / did you mean \"server.js\"?",
        ),
        (
            "\"exec node\"",
            "x",
            b"",
            "the entrypoint is a text for /bin/sh, which is not in the image / set a base: base = \"debian@13\"; or write the entrypoint as a list",
        ),
    ] {
        assert_eq!(said(&format!("entrypoint={entrypoint}"), &[(path, content)]), expected);
    }
}
