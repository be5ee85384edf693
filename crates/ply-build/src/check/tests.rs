use super::*;
use crate::tests::World;
use crate::tests::graph::{MANIFEST, world};
use crate::{Output, build};
use std::fs;

/// The report as lines: what was checked, then each finding.
fn said(world: &World, path: &Path, policy: Option<&str>) -> String {
    let policy = policy.map(|text| Policy::parse(text, "policy.toml").unwrap());
    let report = check(path, "IT", policy.as_ref(), &world.fetcher()).unwrap();
    assert_eq!(report.ok, report.findings.iter().all(|f| f.level == Level::Warning));
    let mut out = format!("{} {}\n", if report.ok { "ok" } else { "not ok" }, report.checked.join(" "));
    for f in &report.findings {
        let level = if f.level == Level::Error { "error" } else { "warning" };
        let hint = f.hint.as_ref().map(|h| format!(" / {h}")).unwrap_or_default();
        out.push_str(&format!("{level} {}: {}{hint}\n", f.rule, f.message));
    }
    out.replace(&world.temp.path().display().to_string(), "TEMP").replace(Arch::HOST.as_str(), "ARCH")
}

#[test]
fn an_image_that_is_well_passes() {
    let world = world();
    let built = world.build().unwrap();
    assert_eq!(said(&world, &built.path, None), "ok manifest structure name lock layers abi entrypoint\n");
    assert_eq!(said(&world, &world.dir(), None), "ok manifest structure lock layers abi entrypoint\n");
    let report = check(&built.path, "IT", None, &world.fetcher()).unwrap();
    assert_eq!(
        serde_json::to_string(&report).unwrap(),
        r#"{"target":"IT","type":"app","ok":true,"checked":["manifest","structure","name","lock","layers","abi","entrypoint"],"findings":[]}"#
    );
}

#[test]
fn layers_are_fetched_and_missing_ones_named() {
    let world = world();
    let built = world.build().unwrap();
    fs::remove_dir_all(world.dirs().store()).unwrap();
    assert!(said(&world, &built.path, None).starts_with("ok "));
    fs::remove_dir_all(world.dirs().store()).unwrap();
    fs::remove_dir_all(world.registry().join("node")).unwrap();
    let said = said(&world, &built.path, None);
    assert!(said.starts_with("not ok manifest structure name lock layers\nerror layers: "), "{said}");
    assert!(said.contains("node"), "{said}");
}

#[test]
fn a_file_name_that_lies_and_one_that_says_nothing_are_told() {
    let world = world();
    let built = world.build().unwrap();
    let lying = world.temp.path().join(built.image.to_string().replace("1.2.0", "1.3.0"));
    fs::copy(&built.path, &lying).unwrap();
    assert_eq!(
        said(&world, &lying, None),
        "not ok manifest structure name lock layers abi entrypoint\n\
         error name: the file is named shop-1.3.0-linux-ARCH.img, and the manifest inside says shop-1.2.0-linux-ARCH.img / rename it to shop-1.2.0-linux-ARCH.img\n"
    );
    let plain = world.temp.path().join("app.img");
    fs::copy(&built.path, &plain).unwrap();
    assert!(said(&world, &plain, None).contains("warning name: the file's name tells no package: app.img"));
}

#[test]
fn faults_of_a_directory_are_findings() {
    for (change, expected) in [
        (("ply.toml", "[package]\nname = 1\n"), "not ok manifest\nerror manifest: TEMP/shop/ply.toml:"),
        (
            (".env", ""),
            "not ok manifest structure lock layers abi entrypoint\nerror structure: a file that looks like a credential would ship: .env",
        ),
        (
            ("ply.lock", "version = 9\n"),
            "not ok manifest structure lock\nerror lock: TEMP/shop/ply.lock:1:11: a newer ply",
        ),
        (
            ("ply.toml", &MANIFEST.replace("\"22\"", "\"22.6\"")),
            "not ok manifest structure lock layers abi entrypoint\nerror lock: ply.lock does not satisfy the manifest / bring it up to date with: ply build",
        ),
        (
            ("ply.toml", &MANIFEST.replace("\"22\"", "\"23\"")),
            "not ok manifest structure lock layers abi\nerror layers: ",
        ),
        (
            ("ply.toml", &MANIFEST.replace("[\"node\"", "[\"nodd\"")),
            "not ok manifest structure lock layers abi entrypoint\nerror entrypoint: the entrypoint's program is not in the image: nodd / did you mean \"node\"?",
        ),
    ] {
        let world = world();
        world.build().unwrap();
        world.write(change.0, change.1);
        let said = said(&world, &world.dir(), None);
        assert!(said.starts_with(expected), "{said}\nexpected {expected}");
    }
    let world = world();
    assert!(
        said(&world, &world.dir(), None).starts_with(
            "ok manifest structure lock layers abi entrypoint\nwarning lock: there is no ply.lock"
        )
    );
}

#[test]
fn a_policy_holds_an_image_to_bases_versions_rights_and_egress() {
    let world = world();
    world.write("ply.toml", &format!("{MANIFEST}capabilities = [\"net_raw\", \"chown\"]\n[run.network]\negress = [\"api.stripe.com\", \"1.1.1.1\"]\n"));
    let built = world.build().unwrap();
    for (policy, expected) in [
        ("bases = [\"debian@13\"]", ""),
        (
            "bases = [\"debian@12\", \"alpine\"]",
            "error policy: the policy does not allow the base debian 13.0.0 / allowed are: debian@12, alpine\n",
        ),
        (
            "bases = []",
            "error policy: the policy does not allow the base debian 13.0.0 / the policy allows no base: link the app statically\n",
        ),
        ("[least]\nnode = \"22.1.0\"", ""),
        (
            "[least]\nnode = \"22.6.0\"\nopenssl = \"3.0.0\"",
            "error policy: node is 22.1.0, and the policy asks for 22.6.0 at least / move it with: ply update node\n",
        ),
        ("[capabilities]\nforbid = [\"sys_admin\"]", ""),
        (
            "[capabilities]\nforbid = [\"sys_admin\", \"net_raw\"]",
            "error policy: the policy forbids capabilities that the app keeps: net_raw / take them out of [run] capabilities\n",
        ),
        ("[egress]\nallow = [\"*.stripe.com\", \"1.1.1.0/24\"]\nrequire = [\"1.1.1.1\"]", ""),
        (
            "[egress]\nallow = [\"*.stripe.com\"]",
            "error policy: the policy does not allow egress to 1.1.1.1\n",
        ),
        (
            "[egress]\nrequire = [\"db.internal\"]",
            "error policy: the policy asks for egress to db.internal, which the app does not claim / add it to [run.network] egress: \"db.internal\"\n",
        ),
    ] {
        let verdict = if expected.is_empty() { "ok" } else { "not ok" };
        assert_eq!(
            said(&world, &built.path, Some(policy)),
            format!("{verdict} manifest structure name lock layers abi entrypoint policy\n{expected}"),
            "{policy}"
        );
    }
    world.write("ply.toml", MANIFEST);
    assert!(
        said(&world, &world.dir(), Some("[egress]\ndeclared = true"))
            .contains("error policy: the policy asks for declared egress, and the app declares none")
    );
}

#[test]
fn an_abi_that_differs_from_the_base_is_found_in_an_image() {
    let world = world();
    let built = world.build().unwrap();
    // As after a rebase by hand: the manifest inside asks for another ABI than the locked base has.
    let text = format!("{MANIFEST}[build.requires]\nabi = \"linux-x64-musl\"\n");
    let image = ply_image::Image::open(&built.path).unwrap();
    let mut tree = ply_image::Tree::new();
    let mut add = |path: &str, text: &str| {
        let source = ply_image::Source::Bytes(text.as_bytes().to_vec());
        tree.add_file(path, source, ply_image::Attr::mode(0o644)).unwrap();
    };
    add(".manifest.toml", &text);
    add(".lock.toml", &image.lock_text().unwrap().unwrap());
    add("opt/shop/server.js", "");
    let changed = world.temp.path().join(built.image.to_string());
    let mut file = fs::File::options().read(true).write(true).create_new(true).open(&changed).unwrap();
    ply_image::pack(&tree, &ply_image::PackOptions::new(6), &mut file).unwrap();
    let said = said(&world, &changed, None);
    assert!(
        said.starts_with("not ok manifest structure name lock layers abi entrypoint\nerror abi: shop 1.2.0 was built for linux-"),
        "{said}"
    );
}

#[test]
fn what_is_no_image_is_an_error_and_a_composition_is_only_read() {
    let world = World::new();
    world.write("x.img", "hello");
    assert!(check(&world.dir().join("x.img"), "x", None, &world.fetcher()).is_err());
    assert!(check(&world.dir().join("none.img"), "x", None, &world.fetcher()).is_err());
    world.write("ply.toml", "[package]\nname=\"s\"\n[[service]]\nrun=\"redis@8\"\n");
    assert_eq!(said(&world, &world.dir(), None), "ok manifest\n");
}

#[test]
fn an_app_without_a_base_is_checked_for_its_loader() {
    let world = World::app(&[("run", "not a program")]);
    let mut request = world.request();
    request.output = Output::Folder;
    let built = build(&request, &world.fetcher()).unwrap();
    let said = said(&world, &built.path, None);
    assert_eq!(
        said,
        "not ok manifest structure name lock entrypoint\n\
         error entrypoint: the entrypoint's program is not executable: ./run / make it executable before the build: chmod +x run\n"
    );
    assert_eq!(built.notices.len(), 1);
}
