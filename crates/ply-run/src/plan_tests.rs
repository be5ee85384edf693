//! Plans compared whole, and every refusal that a plan can see.

use crate::links::HostMeta;
use crate::options::RunOptions;
use crate::plan::{IdMode, Placement, Plan, PlanInput, PlanLayer, plan};
use crate::rootfs::fake::FakeRoot;
use ply_manifest::{DevOverlay, Digest, LayerSection, Manifest};
use ply_sandbox::{CgroupKind, CgroupPlace, Enforced, Host, Ids, Kernel, MountOwner, SubIds};
use std::path::Path;

const MANIFEST: &str = r#"
[package]
name = "shop"
version = "1.2.0"
[build]
base = "debian@13"
dependencies = { node = "22" }
[run]
entrypoint = ["node", "server.js"]
user = "shop:1000:1000"
[run.env]
NODE_ENV = "production"
DB_URL = "postgres://shop:{password}@db/{name}"
ADDRESS = "{addr}"
[run.params]
password = { secret = true }
[run.ports]
web = 3000
[run.volumes]
data = "/var/lib/shop"
uploads = { path = "/srv/up", scope = "shared" }
[run.resources]
mem = "512M"
cpu = "1.5"
[run.requests]
links = ["/srv/assets:/assets:ro"]
[run.health]
grace = "30s"
[run.restart]
policy = "always"
"#;

fn root() -> FakeRoot {
    FakeRoot::with(&[
        ("/opt/shop/server.js", 0o644, ""),
        ("/opt/shop/bin/tool", 0o755, ""),
        ("/opt/node-22.6.0/bin/node", 0o755, ""),
        ("/bin/sh", 0o755, ""),
        ("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n"),
        ("/etc/group", 0o644, "root:x:0:\n"),
        ("/root/.profile", 0o644, ""),
    ])
}

pub(crate) fn host(root: bool) -> Host {
    Host {
        uid: if root { 0 } else { 1000 },
        gid: if root { 0 } else { 1000 },
        root,
        kernel: Kernel {
            release: "6.18.0".into(),
            version: (6, 18),
            user_namespaces: Ok(()),
            overlay: true,
            squashfs: true,
            loop_devices: true,
            squashfs_idmap: true,
            overlay_idmap: true,
            overlay_detached: true,
            tmpfs_user_xattr: true,
            openat2: true,
            seccomp: true,
        },
        sub_ids: if root {
            SubIds::default()
        } else {
            SubIds { uids: vec![(100_000, 65_536)], gids: vec![(100_000, 65_536)] }
        },
        newuidmap: Some("/usr/bin/newuidmap".into()),
        newgidmap: Some("/usr/bin/newgidmap".into()),
        cgroup: CgroupKind::V2 { mount: "/sys/fs/cgroup".into() },
        cgroup_place: CgroupPlace::Folder("ply".into()),
        cgroup_writable: true,
        cgroup_refusal: None,
        enforced: Enforced { pids: true, memory: true, cpu: true },
        memory_bytes: 1 << 30,
    }
}

fn layers() -> Vec<PlanLayer> {
    let layer = |name: &str, n: u8, path: &[&str]| PlanLayer {
        digest: Digest::from_bytes([n; 32]),
        name: format!("{name}-linux-x64.img").parse().unwrap(),
        image: format!("/store/{n}.img").into(),
        tree: None,
        section: LayerSection { path: path.iter().map(|p| p.to_string()).collect(), ..Default::default() },
    };
    vec![
        layer("shop-1.2.0", 1, &[]),
        layer("node-22.6.0", 2, &["/opt/node-22.6.0/bin"]),
        layer("debian-13.0.0", 3, &[]),
    ]
}

struct Case {
    manifest: String,
    options: RunOptions,
    host: Host,
    overlay: Option<DevOverlay>,
}

impl Case {
    fn new() -> Self {
        let env = vec!["DB_URL=postgres://x:hunter2@db/shop".parse().unwrap()];
        let options = RunOptions { env, ..Default::default() };
        Self { manifest: MANIFEST.to_owned(), options, host: host(true), overlay: None }
    }

    fn plan(&self) -> Result<Plan, (u8, String, Option<String>)> {
        let manifest = Manifest::parse(&self.manifest, "ply.toml").unwrap();
        let (root, layers) = (root(), layers());
        let input = PlanInput {
            manifest: &manifest,
            layers: &layers,
            overlay: self.overlay.as_ref().map(|o| (o, Path::new("/home/me/shop"))),
            env_files: &[],
            options: &self.options,
            host: &self.host,
            root: &root,
            cwd: Path::new("/home/me"),
            caller: &|_| None,
            host_stat: &|path| {
                if path.starts_with("/gone") {
                    return Err(std::io::ErrorKind::NotFound.into());
                }
                Ok(HostMeta { uid: 7, gid: 8, is_device: path == Path::new("/dev/fuse") })
            },
        };
        plan(&input).map_err(|e| (e.exit_code(), e.to_string(), e.hint()))
    }

    fn refused(self) -> (u8, String) {
        self.plan()
            .map(|p| (p.name.to_string(), p.argv))
            .map_err(|(code, message, _)| (code, message))
            .unwrap_err()
    }
}

#[test]
fn a_plan_says_everything_that_a_run_will_do() {
    let mut case = Case::new();
    case.options.publish = vec!["8080".parse().unwrap(), "127.0.0.1:9000:9001".parse().unwrap()];
    case.options.links = vec!["./site:public:ro".parse().unwrap()];
    case.options.args = vec!["--port".into(), "3 000".into()];
    let plan = case.plan().unwrap();
    let expected = "\
name         shop
image        shop-1.2.0-linux-x64.img sha256:0101010101010101010101010101010101010101010101010101010101010101
instances    1
entrypoint   node server.js --port '3 000'
workdir      /opt/shop
user         shop (1000:1000), home /home/shop
ids          a range of 65536 that is nobody outside
capabilities none
pid 1        an init of ply's
stop         SIGTERM, killed after 10s
restart      always after 1s, up to 1m
health       port 3000 takes a connection within 30s, then every 5s
memory       512M
cpu          1.5
processes    4096
scratch      256M
network      own
publish      public:8080 to 3000
publish      127.0.0.1:9000 to 9001
volume       uploads at /srv/up (shared)
volume       data at /var/lib/shop (one a slot)
link         /home/me/site at /opt/shop/public (read-only)
layers
  shop-1.2.0-linux-x64.img sha256:0101010101010101010101010101010101010101010101010101010101010101
  node-22.6.0-linux-x64.img sha256:0202020202020202020202020202020202020202020202020202020202020202
  debian-13.0.0-linux-x64.img sha256:0303030303030303030303030303030303030303030303030303030303030303
environment
  ADDRESS   shop.ply:3000  (manifest)
  DB_URL    ••••••  (-e)
  HOME      /home/shop  (default)
  LANG      C.UTF-8  (default)
  NODE_ENV  production  (manifest)
  PATH      /opt/shop/bin:/opt/node-22.6.0/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin  (layer node-22.6.0)
  TERM      xterm  (default)
";
    assert_eq!(plan.to_string(), expected);
    assert_eq!(
        plan.notices,
        [
            "the image asks for host paths that it doesn't get: /srv/assets:/assets:ro (--grant-links gives them)",
        ]
    );
    let json = plan.to_json();
    assert!(!json.to_string().contains("hunter2"));
    assert_eq!(json["env"][1]["value"], "••••••");
    assert_eq!(json["publish"][0]["address"], "public");
    assert_eq!(json["limits"]["memory_bytes"], 512 << 20);
}

#[test]
fn the_box_of_a_slot_follows_from_the_plan() {
    let mut case = Case::new();
    case.options.links = vec!["./site:/srv/site".parse().unwrap()];
    case.options.add_hosts = vec!["db.test:10.0.0.7".parse().unwrap()];
    case.options.dns = vec!["9.9.9.9".parse().unwrap()];
    let plan = case.plan().unwrap();
    assert_eq!(plan.ids, IdMode::Leased);
    let placement = Placement {
        slot: 2,
        id: "shop.2-1-1".into(),
        ids: Ids::Leased { start: 1, count: 65_536 },
        volumes: vec!["/v/uploads.shared".into(), "/v/data.2".into()],
    };
    let spec = plan.spec(&placement);
    assert_eq!(spec.hostname, "shop-2");
    let mounts: Vec<_> =
        spec.mounts.iter().map(|m| (m.source.to_str().unwrap(), m.target.as_str(), m.owner)).collect();
    let owner = MountOwner::HostUser { uid: 7, gid: 8 };
    assert_eq!(
        mounts,
        [
            ("/home/me/site", "/srv/site", owner),
            ("/v/uploads.shared", "/srv/up", MountOwner::Inside),
            ("/v/data.2", "/var/lib/shop", MountOwner::Inside),
        ]
    );
    let text = |path: &str| {
        let file = spec.files.iter().find(|f| f.path == path).unwrap();
        String::from_utf8(file.contents.clone()).unwrap()
    };
    assert!(text("/etc/hosts").ends_with("127.0.0.1 shop-2 shop.ply 2.shop.ply\n10.0.0.7 db.test\n"));
    assert_eq!(text("/etc/resolv.conf"), "nameserver 9.9.9.9\n");
    assert!(text("/etc/passwd").contains("shop:x:1000:1000:"));
    assert_eq!(spec.folders.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["/home/shop"]);
    assert!(spec.process.env.contains(&("DB_URL".into(), "postgres://x:hunter2@db/shop".into())));
    // Rootless, a link's files are the caller's, who is root inside.
    case.host = host(false);
    let plan = case.plan().unwrap();
    assert_eq!(plan.ids, IdMode::Rootless);
    assert!(plan.spec(&placement).mounts.iter().all(|m| m.owner == MountOwner::Inside));
    assert!(
        plan.notices.iter().any(|n| n.starts_with("linked files belong to root inside")),
        "{:?}",
        plan.notices
    );
}

#[test]
fn host_names_are_cut_to_a_label() {
    let mut case = Case::new();
    case.options.name = Some("a".repeat(63).parse().unwrap());
    let plan = case.plan().unwrap();
    assert_eq!(plan.hostname(7), format!("{}-7", "a".repeat(61)));
    assert_eq!(plan.hostname(1000).len(), 63);
}

#[test]
fn flags_and_the_overlay_win_over_the_manifest() {
    let mut case = Case::new();
    case.overlay =
        Some(DevOverlay::parse("entrypoint = [\"tool\"]\nlinks = [\"src:src\"]\n", "ply.dev.toml").unwrap());
    let plan = case.plan().unwrap();
    assert_eq!(plan.argv, ["tool"]);
    assert_eq!(
        (plan.links[0].host.to_str().unwrap(), plan.links[0].at.as_str()),
        ("/home/me/shop/src", "/opt/shop/src")
    );
    case.options.entrypoint = Some("/bin/sh".parse().unwrap());
    case.options.user = Some("root".parse().unwrap());
    case.options.workdir = Some("/tmp".into());
    case.options.mem = Some("64M".parse().unwrap());
    case.options.pids = Some(9);
    case.options.capabilities = Some("chown".parse().unwrap());
    case.options.stop_signal = Some("quit".parse().unwrap());
    case.options.no_init = true;
    case.options.grant_links = true;
    let plan = case.plan().unwrap();
    assert_eq!(
        (plan.argv.as_slice(), plan.workdir.as_str(), plan.user.uid),
        (&["/bin/sh".to_owned()][..], "/tmp", 0)
    );
    assert_eq!(
        (plan.limits.memory_bytes, plan.limits.pids, plan.scratch_bytes),
        (Some(64 << 20), 9, 32 << 20)
    );
    assert_eq!((plan.capabilities.as_slice(), plan.init), (&["chown".to_owned()][..], false));
    assert_eq!(plan.stop_signal.to_string(), "SIGQUIT");
    assert!(plan.links.iter().any(|l| l.at == "/assets" && l.read_only));
    assert!(plan.requested_links.is_empty());
}

#[test]
fn an_init_of_its_own_is_pid_1() {
    let mut case = Case::new();
    case.manifest = MANIFEST.replace("[\"node\", \"server.js\"]", "[\"/sbin/init\"]");
    case.options.links = vec!["/host/sbin:/sbin".parse().unwrap()];
    assert!(!case.plan().unwrap().init);
}

#[test]
fn what_a_plan_refuses() {
    let change = |change: &dyn Fn(&mut Case)| {
        let mut case = Case::new();
        change(&mut case);
        case.refused()
    };
    assert_eq!(
        change(&|c| c.options.env.clear()),
        (125, "shop: [env] DB_URL reads a secret param — pass -e DB_URL=… , or run it from a stack (ply up mints secrets)".into())
    );
    assert_eq!(
        change(&|c| {
            c.host = host(false);
            c.host.sub_ids = SubIds::default();
        }),
        (
            125,
            "it runs as shop (1000:1000), and your account has no id range, so only root exists inside"
                .into()
        )
    );
    assert_eq!(
        change(&|c| {
            c.host = host(false);
            c.host.newuidmap = None;
        }),
        (125, "it runs as shop (1000:1000), and newuidmap and newgidmap are not installed, so only root exists inside".into())
    );
    assert_eq!(
        change(&|c| {
            c.host = host(false);
            c.host.sub_ids = SubIds { uids: vec![(100_000, 999)], gids: vec![(100_000, 65_536)] };
        }),
        (125, "it runs as shop (1000:1000), and your account's id range ends at 999".into())
    );
    assert_eq!(
        change(&|c| c.options.publish = vec!["80".parse().unwrap(), "80:81".parse().unwrap()]),
        (2, "--publish 80:81: the port is published twice".into())
    );
    assert_eq!(
        change(&|c| {
            c.options.publish = vec!["80".parse().unwrap()];
            c.options.network = Some(crate::options::NetworkFlag::Host);
        }),
        (2, "--publish and --network host can't go together".into())
    );
    assert_eq!(
        change(&|c| c.options.devices = vec!["/etc/passwd".into()]),
        (2, "--device /etc/passwd: no such device".into())
    );
    assert_eq!(
        change(&|c| c.options.links = vec!["/srv/x:/srv/up".parse().unwrap()]),
        (2, "a volume and a link are both at /srv/up".into())
    );
    assert_eq!(
        change(&|c| c.options.links = vec!["/gone:/x".parse().unwrap()]).1,
        "a link's host path can't be used: /gone: entity not found"
    );
    assert_eq!(
        change(&|c| c.options.workdir = Some("rel".into())),
        (2, "\"rel\" is not a working directory".into())
    );
    assert_eq!(
        change(&|c| c.options.params = vec!["passwrd=x".parse().unwrap()]),
        (125, "shop has no param \"passwrd\" to set".into())
    );
    assert_eq!(
        change(&|c| c.options.entrypoint = Some("nod".parse().unwrap())),
        (127, "the entrypoint isn't in shop-1.2.0-linux-x64.img: nod".into())
    );
}

#[test]
fn scale_keeps_its_least_from_the_first_day() {
    let mut case = Case::new();
    case.options.set = vec!["scale.min=3".parse().unwrap()];
    assert_eq!(case.plan().unwrap().scale, 3);
    case.options.scale = Some(5);
    assert_eq!(case.plan().unwrap().scale, 5);
    case.options.scale = Some(2);
    assert_eq!(case.refused(), (2, "--scale 2 is below the least that [run.scale] allows: 3".into()));
}

#[test]
fn a_param_that_was_given_is_a_secret_wherever_it_went() {
    let mut case = Case::new();
    case.options.env.clear();
    case.options.params = vec!["password=hunter2".parse().unwrap()];
    let plan = case.plan().unwrap();
    let var = plan.env.iter().find(|v| v.name == "DB_URL").unwrap();
    assert_eq!(var.value, "postgres://shop:hunter2@db/shop");
    assert!(!plan.to_string().contains("hunter2") && !plan.to_json().to_string().contains("hunter2"));
}
