use super::*;
use proptest::prelude::*;

fn on(system: System, machine: &str) -> Platform {
    Platform { system, machines: vec![machine.to_owned()] }
}

const LINUX: System = System::Linux(None);
const GNU: System = System::Linux(Some(Libc::Gnu));
const MUSL: System = System::Linux(Some(Libc::Musl));

fn refused(files: &[(&str, Platform)], packages: &[&str], arch: Arch) -> Vec<String> {
    let addons: Vec<Addon> = files
        .iter()
        .map(|(p, platform)| Addon { path: p.as_bytes().to_vec(), platform: platform.clone() })
        .collect();
    let packages = packages.iter().map(|p| p.as_bytes().to_vec()).collect();
    foreign(&addons, &packages, AddonTarget { arch, libc: Some(Libc::Gnu) })
}

#[test]
fn an_addon_for_another_system_in_a_package_without_one_for_the_target_is_named() {
    let files = [("node_modules/bcrypt/lib/binding/bcrypt.node", on(System::MacOs, "arm64"))];
    assert_eq!(
        refused(&files, &[], Arch::X64),
        ["node_modules/bcrypt/lib/binding/bcrypt.node (macOS arm64)"]
    );
}

#[test]
fn an_addon_for_another_processor_is_named() {
    let files = [("node_modules/bcrypt/build/Release/bcrypt.node", on(GNU, "x64"))];
    assert!(refused(&files, &[], Arch::X64).is_empty());
    assert_eq!(
        refused(&files, &[], Arch::Arm64),
        ["node_modules/bcrypt/build/Release/bcrypt.node (Linux x64)"]
    );
}

#[test]
fn an_addon_for_musl_on_a_gnu_base_is_named() {
    let files = [("node_modules/argon2/argon2.node", on(MUSL, "x64"))];
    assert_eq!(refused(&files, &[], Arch::X64), ["node_modules/argon2/argon2.node (Linux with musl x64)"]);
}

#[test]
fn a_prebuilt_set_in_one_package_passes_when_the_target_is_in_it() {
    let set = [
        ("node_modules/utf-8-validate/prebuilds/darwin-x64/node.napi.node", on(System::MacOs, "x64")),
        ("node_modules/utf-8-validate/prebuilds/win32-x64/node.napi.node", on(System::Windows, "x64")),
        ("node_modules/utf-8-validate/prebuilds/linux-x64/node.napi.node", on(LINUX, "x64")),
    ];
    assert!(refused(&set, &[], Arch::X64).is_empty());
    assert_eq!(refused(&set, &[], Arch::Arm64).len(), 3);
}

#[test]
fn a_prebuilt_set_over_sibling_packages_passes_when_the_target_is_in_it() {
    let mac =
        ("node_modules/@img/sharp-darwin-arm64/lib/sharp-darwin-arm64.node", on(System::MacOs, "arm64"));
    let linux = ("node_modules/@img/sharp-linux-x64/lib/sharp-linux-x64.node", on(GNU, "x64"));
    let musl = ("node_modules/@img/sharp-linuxmusl-x64/lib/sharp-linuxmusl-x64.node", on(MUSL, "x64"));
    let nested = (
        "node_modules/.pnpm/@img+sharp-linux-x64@1/node_modules/@img/sharp-linux-x64/lib/a.node",
        on(GNU, "x64"),
    );
    assert!(refused(&[mac.clone(), linux, musl.clone()], &[], Arch::X64).is_empty());
    assert!(refused(&[mac.clone(), nested], &[], Arch::X64).is_empty());
    assert_eq!(refused(&[mac, musl], &[], Arch::X64).len(), 2, "none of them is for glibc");
}

#[test]
fn a_set_of_another_package_does_not_help() {
    let files = [
        ("node_modules/a/a.node", on(System::MacOs, "arm64")),
        ("node_modules/b/b.node", on(GNU, "x64")),
        ("node_modules/b/node_modules/a/a.node", on(GNU, "x64")),
    ];
    assert_eq!(refused(&files, &[], Arch::X64), ["node_modules/a/a.node (macOS arm64)"]);
}

#[test]
fn outside_of_node_modules_the_nearest_package_json_makes_the_package() {
    let files = [("native/mac.node", on(System::MacOs, "x64")), ("lib/linux.node", on(GNU, "x64"))];
    assert!(refused(&files, &[""], Arch::X64).is_empty());
    assert_eq!(refused(&files, &["", "native"], Arch::X64).len(), 1);
}

#[test]
fn headers_tell_the_platform() {
    let mut mac = vec![0xcf, 0xfa, 0xed, 0xfe];
    mac.extend(0x0100_000c_u32.to_le_bytes());
    assert_eq!(platform(&mac), Some(on(System::MacOs, "arm64")));

    let mut fat = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 2];
    fat.extend(0x0100_0007_u32.to_be_bytes());
    fat.extend([0; 16]);
    fat.extend(0x0100_000c_u32.to_be_bytes());
    assert_eq!(platform(&fat).unwrap().to_string(), "macOS x64 and arm64");

    let mut windows = vec![0; 0x50];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x40;
    windows[0x40..0x44].copy_from_slice(b"PE\0\0");
    windows[0x44..0x46].copy_from_slice(&0x8664_u16.to_le_bytes());
    assert_eq!(platform(&windows), Some(on(System::Windows, "x64")));

    let mut linux = vec![0; 64];
    linux[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    linux[18..20].copy_from_slice(&183_u16.to_le_bytes());
    assert_eq!(platform(&linux), Some(on(LINUX, "arm64")));
    linux[7] = 9;
    assert_eq!(platform(&linux), Some(on(System::FreeBsd, "arm64")));

    assert_eq!(platform(b"not native at all"), None);
    assert_eq!(platform(b""), None);
}

#[test]
fn a_real_library_of_this_machine_tells_its_c_library() {
    // The loader is on every glibc system; libm needs libc.so.6.
    let dir = format!("/usr/lib/{}-linux-gnu/libm.so.6", std::env::consts::ARCH);
    let libm = std::fs::read(dir).expect("libm.so.6 of the system");
    assert_eq!(platform(&libm), Some(on(GNU, Arch::HOST.as_str())));
}

proptest! {
    #[test]
    fn no_bytes_panic(mut data in proptest::collection::vec(any::<u8>(), 0..300), magic in 0_usize..5) {
        let magics: [&[u8]; 5] =
            [b"\x7fELF\x02\x01\x01", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ", b""];
        for (to, from) in data.iter_mut().zip(magics[magic]) {
            *to = *from;
        }
        let _ = platform(&data);
    }

    #[test]
    fn one_file_for_the_target_saves_its_whole_package(
        others in proptest::collection::vec(prop_oneof![Just(System::MacOs), Just(System::Windows), Just(MUSL)], 0..6),
    ) {
        let mut files: Vec<(String, Platform)> = others
            .iter().enumerate().map(|(n, s)| (format!("node_modules/p/prebuilds/{n}.node"), on(*s, "x64"))).collect();
        let all: Vec<(&str, Platform)> = files.iter().map(|(p, f)| (p.as_str(), f.clone())).collect();
        prop_assert_eq!(refused(&all, &[], Arch::X64).len(), others.len());
        files.push(("node_modules/p/build/Release/p.node".to_owned(), on(GNU, "x64")));
        let all: Vec<(&str, Platform)> = files.iter().map(|(p, f)| (p.as_str(), f.clone())).collect();
        prop_assert!(refused(&all, &[], Arch::X64).is_empty());
    }
}
