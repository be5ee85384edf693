//! Who the app is inside: the manifest's triple, a flag, or a user that the image knows; and the passwd and
//! group files that make it exist there. Pure; names are looked up in the image only, never on the host, whatever
//! its `/etc/passwd` is a link to (CVE-2024-9676).

use crate::RunError;
use crate::options::UserFlag;
use crate::rootfs::Rootfs;
use ply_manifest::{UserSpec, nearest};
use serde::{Deserialize, Serialize};

/// The longest passwd or group file of an image that is read.
const FILE_LIMIT: usize = 1 << 20;

/// The run user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name, or its number where the image gives it none.
    pub name: String,
    /// The user id inside.
    pub uid: u32,
    /// The group id inside.
    pub gid: u32,
    /// Supplementary groups: those of the image's group file that list the name.
    pub groups: Vec<u32>,
    /// The home folder.
    pub home: String,
}

/// The run user, and the files of scratch that make it exist; none where the image has what is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedUser {
    /// Who.
    pub user: User,
    /// `/etc/passwd`, where it must differ from the image's.
    pub passwd: Option<String>,
    /// `/etc/group`, where it must differ from the image's.
    pub group: Option<String>,
    /// Whether the home folder must be made.
    pub make_home: bool,
}

/// Finds the user. A flag wins over the manifest; neither is root.
pub fn plan_user(
    manifest: Option<&UserSpec>,
    flag: Option<&UserFlag>,
    root: &dyn Rootfs,
) -> Result<PlannedUser, RunError> {
    let read = |path: &str| {
        root.read(path, FILE_LIMIT).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    };
    let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
    let (name, uid, gid, named) = match (flag, manifest) {
        (Some(UserFlag::Triple(spec)), _) | (None, Some(spec)) => {
            (spec.name.clone(), spec.uid, spec.gid, true)
        }
        (Some(UserFlag::Name(name)), _) => {
            // The manifest's own user may be meant: it exists inside by being declared.
            if let Some(spec) = manifest.filter(|spec| spec.name == *name) {
                (name.clone(), spec.uid, spec.gid, true)
            } else if let Some(entry) = entries(&passwd).find(|e| e.name == name) {
                (name.clone(), entry.uid, entry.gid, false)
            } else if name == "root" {
                ("root".to_owned(), 0, 0, false)
            } else {
                let known: Vec<&str> = entries(&passwd).map(|e| e.name).collect();
                let hint = match nearest(name, known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("write it whole: --user {name}:UID:GID"),
                };
                return Err(RunError::refused(format!("the image has no user of the name {name:?}"), hint));
            }
        }
        (Some(UserFlag::Ids(uid, gid)), _) => match entries(&passwd).find(|e| e.uid == *uid) {
            Some(entry) => (entry.name.to_owned(), *uid, gid.unwrap_or(entry.gid), false),
            None if *uid == 0 => ("root".to_owned(), 0, gid.unwrap_or(0), false),
            None => (uid.to_string(), *uid, gid.unwrap_or(*uid), false),
        },
        (None, None) => match entries(&passwd).find(|e| e.uid == 0) {
            Some(entry) => (entry.name.to_owned(), 0, entry.gid, false),
            None => ("root".to_owned(), 0, 0, false),
        },
    };

    let own = entries(&passwd).find(|e| e.name == name);
    let own = own.as_ref();
    let home = match own.map(|e| e.home).filter(|h| h.starts_with('/') && *h != "/nonexistent") {
        Some(home) if !(named && home == "/") => home.to_owned(),
        _ if uid == 0 => "/root".to_owned(),
        _ if !named => "/".to_owned(),
        _ => format!("/home/{name}"),
    };
    let numeric = name.bytes().all(|b| b.is_ascii_digit());
    let line = format!("{name}:x:{uid}:{gid}:{name}:{home}:{}", shell(root));
    let known = own.is_some_and(|e| e.uid == uid && (!named || (e.gid == gid && e.home == home)));
    let new_passwd = (!known && !numeric).then(|| with_line(&passwd, &name, &line));

    let group_known = groups(&group).any(|g| g.gid == gid);
    let new_group = (!group_known && !numeric).then(|| with_line(&group, &name, &format!("{name}:x:{gid}:")));
    let mut supplementary: Vec<u32> = groups(&group)
        .filter(|g| g.gid != gid && g.members.split(',').any(|m| m == name))
        .map(|g| g.gid)
        .collect();
    supplementary.sort_unstable();
    supplementary.dedup();

    let make_home = root.stat(&home).is_none();
    let user = User { name, uid, gid, groups: supplementary, home };
    Ok(PlannedUser { user, passwd: new_passwd, group: new_group, make_home })
}

/// A shell that the image has, for the passwd line.
fn shell(root: &dyn Rootfs) -> &'static str {
    if root.stat("/bin/sh").is_some() { "/bin/sh" } else { "/usr/sbin/nologin" }
}

/// `text` without lines that begin with `name:`, and `line` in front: the first line of an id names it.
fn with_line(text: &str, name: &str, line: &str) -> String {
    let mut out = String::with_capacity(text.len() + line.len() + 1);
    // Root stays first, so that id 0 keeps its name.
    let (root, rest): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|l| !l.is_empty() && l.split(':').next() != Some(name))
        .partition(|l| l.starts_with("root:"));
    for l in root.into_iter().chain([line]).chain(rest) {
        out.push_str(l);
        out.push('\n');
    }
    out
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|n| !n.is_empty())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Entry { name, uid, gid, home: fields.nth(1).unwrap_or("") })
    })
}

struct Group<'a> {
    gid: u32,
    members: &'a str,
}

fn groups(group: &str) -> impl Iterator<Item = Group<'_>> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let gid = fields.nth(2)?.parse().ok()?;
        Some(Group { gid, members: fields.next().unwrap_or("") })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rootfs::fake::FakeRoot;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
                          redis:x:100:101::/var/lib/redis:/usr/sbin/nologin\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:redis,syslog\nredis:x:101:\ndialout:x:20:redis\n";

    fn root() -> FakeRoot {
        FakeRoot::with(&[
            ("/etc/passwd", 0o644, PASSWD),
            ("/etc/group", 0o644, GROUP),
            ("/bin/sh", 0o755, ""),
            ("/root/.profile", 0o644, ""),
            ("/var/lib/redis/x", 0o644, ""),
        ])
    }

    fn plan(manifest: Option<&str>, flag: Option<&str>) -> PlannedUser {
        let spec: Option<UserSpec> = manifest.map(|m| m.parse().unwrap());
        let flag: Option<UserFlag> = flag.map(|f| f.parse().unwrap());
        plan_user(spec.as_ref(), flag.as_ref(), &root()).unwrap()
    }

    #[test]
    fn nothing_said_is_root_and_changes_no_file() {
        let p = plan(None, None);
        assert_eq!((p.user.uid, p.user.gid, p.user.home.as_str()), (0, 0, "/root"));
        assert_eq!((p.passwd, p.group, p.make_home), (None, None, false));
        let bare = plan_user(None, None, &FakeRoot::default()).unwrap();
        assert_eq!(bare.passwd.as_deref(), Some("root:x:0:0:root:/root:/usr/sbin/nologin\n"));
        assert!(bare.make_home);
    }

    #[test]
    fn a_declared_user_is_made_to_exist() {
        let p = plan(Some("app:1000:1000"), None);
        assert!(p.make_home && p.user.home == "/home/app" && p.user.groups.is_empty());
        let passwd = p.passwd.unwrap();
        assert!(
            passwd.starts_with("root:x:0:0:root:/root:/bin/bash\napp:x:1000:1000:app:/home/app:/bin/sh\n")
        );
        assert!(passwd.contains("redis:x:100:101::"));
        assert_eq!(p.group.unwrap(), format!("root:x:0:\napp:x:1000:\n{}", &GROUP["root:x:0:\n".len()..]));
    }

    #[test]
    fn a_name_of_the_image_with_other_ids_is_replaced() {
        let passwd = plan(Some("redis:999:999"), None).passwd.unwrap();
        assert_eq!(passwd.lines().filter(|l| l.starts_with("redis:")).count(), 1);
        assert!(passwd.contains("redis:x:999:999:redis:/var/lib/redis:/bin/sh\n"));
    }

    #[test]
    fn a_flag_looks_names_and_ids_up_in_the_image() {
        let p = plan(Some("app:1000:1000"), Some("redis"));
        assert_eq!((p.user.uid, p.user.gid), (100, 101));
        assert_eq!(p.user.groups, [4, 20]);
        assert_eq!((p.passwd, p.make_home), (None, false));
        assert_eq!(plan(None, Some("100")).user.name, "redis");
        let unnamed = plan(None, Some("4242")).user;
        assert_eq!((unnamed.uid, unnamed.gid, unnamed.home.as_str()), (4242, 4242, "/"));
        assert_eq!(plan(Some("app:1000:1000"), Some("app")).user.uid, 1000);
        let error = plan_user(None, Some(&UserFlag::Name("reds".into())), &root()).unwrap_err();
        assert_eq!(error.to_string(), "the image has no user of the name \"reds\"");
        assert_eq!(error.hint().as_deref(), Some("did you mean \"redis\"?"));
    }

    #[test]
    fn hostile_files_of_an_image_do_no_harm() {
        let root =
            FakeRoot::with(&[("/etc/passwd", 0o644, "::::\nx\nroot:x:0\n:x:0:0\nr:x:99999999999:0\n")]);
        let p = plan_user(None, None, &root).unwrap();
        assert_eq!((p.user.uid, p.user.name.as_str()), (0, "root"));
    }
}
