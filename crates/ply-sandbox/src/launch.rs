//! The launch, in the order in which the kernel needs it: first what the parent does, then what the child does,
//! each step with the reason for its place. What a step needs is in the modules beside this one.

use crate::cgroup::Cgroups;
use crate::defences::{Defence, stands};
use crate::error::Step;
use crate::inside::{self, Root, attach, beneath, copy};
use crate::instance::{Asked, Born, start_time};
use crate::keeper::on_keeper;
use crate::plan::{Plan, Target};
use crate::rights::{self, App, Standard};
use crate::rootfs::{self, DATA, Overlay, PLAIN, above_standard, filesystem};
use crate::scratch::Scratch;
use crate::sys::{self, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, Side, borrow, raw};
use crate::wire::{self, At, Failure, Message};
use crate::{
    ExecTarget, Host, Instance, LaunchError, Network, ProcessId, Spec, Stdio, WindowSize, layers, userns,
};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Where a launch keeps what it needs on the host.
#[derive(Debug, Clone, Copy)]
pub struct LaunchContext<'a> {
    /// The run folder (`/run/ply`): pinned layer mounts.
    pub run_dir: &'a Path,
    /// The data folder: an upper that can't be on tmpfs lives below `scratch/`.
    pub data_dir: &'a Path,
    /// What this machine can do.
    pub host: &'a Host,
    /// The folder of the instances' cgroups, relative to the cgroup mounts (`ply`).
    pub cgroup_parent: &'a Path,
}

/// Starts the box. On any failure nothing is left: no process, no mount, no cgroup.
///
/// # Errors
/// One variant a cause; the sentence is for the user.
pub fn launch(spec: &Spec, context: &LaunchContext<'_>, stdio: Stdio) -> Result<Instance, LaunchError> {
    context.host.check()?;
    on_keeper(|| parent(spec, context, stdio))
}

/// The parent's side. Whatever it holds when it returns early takes its part away by itself.
fn parent(spec: &Spec, context: &LaunchContext<'_>, stdio: Stdio) -> Result<Instance, LaunchError> {
    // Everything the child will need is laid out before the clone: the child can't allocate.
    let scratch = Scratch::make(spec, context.host, context.data_dir)?;
    let plan = Plan::new(spec, context.host, scratch.as_ref().map(|scratch| scratch.path.as_path()))?;
    let app = App::new(&spec.process, &spec.process.argv, &spec.ids, spec.privileged, spec.limits.pids)?;
    let standard = stdio.above_standard()?;

    // The cgroup first, so that the child is born inside it and nothing ever runs outside of the limits.
    let cgroups = Cgroups::make(context.host, context.cgroup_parent, &spec.id, &spec.limits)?;
    let (ours, theirs) = wire::pair().at(Step::Talk)?;
    let theirs = above_standard(theirs).at(Step::Talk)?;
    // By this the child knows that we live: a process number could be somebody else's by then.
    let guard = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
        .and_then(above_standard)
        .at(Step::Parent)?;

    let step = |source| LaunchError::Step { step: Step::JoinCgroup, source };
    let door = cgroups.door_v1().map_err(step)?;
    let door = door.map(above_standard).transpose().at(Step::JoinCgroup)?;

    let own_dev = plan.own_dev().at(Step::Dev)?;

    let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS;
    if stands(Defence::IpcNamespace) {
        flags |= libc::CLONE_NEWIPC;
    }
    if plan.user_namespace {
        flags |= libc::CLONE_NEWUSER;
    }
    // With it go the abstract sockets of the host's programs, which have no other border (CVE-2020-15257).
    if spec.network != Network::Host {
        flags |= libc::CLONE_NEWNET;
    }
    let asked = standard.asked();
    // SAFETY: the child goes into `child`, which neither allocates nor returns.
    let born = match unsafe { sys::clone3(flags as u64, cgroups.unified.as_ref().map(AsFd::as_fd)) }
        .at(Step::Clone)?
    {
        Side::Child => {
            let fds = Inherited {
                socket: raw(&theirs),
                asked,
                guard: raw(&guard),
                door: door.as_ref().map(raw),
                dev: own_dev.as_ref().map(raw),
            };
            child(&plan, &app, &fds)
        }
        Side::Parent { pid, pidfd } => Born { pid, pidfd },
    };
    drop((theirs, guard, door, own_dev));
    drop(standard);

    // The maps and limits are ours to set: the child has no rights outside of its namespace.
    // A child that fails has no more files in /proc: then its own word counts.
    let or_said = |error| {
        let _ = born.signal(libc::SIGKILL);
        match talk(&ours, spec) {
            LaunchError::Step { step: Step::Talk, .. } => error,
            said => said,
        }
    };
    userns::write_maps(born.pid, &spec.ids, context.host).map_err(or_said)?;
    rights::raise_open_files(born.pid);
    wire::send(ours.as_fd(), Message::Go, &[]).map_err(|_| talk(&ours, spec))?;

    // Rootful, the root is put together out here, id-mapped with the child's own namespace (which has its maps
    // by now, without which the kernel refuses), while the child already makes what needs no root.
    let mut made = Vec::new();
    if let Some(options) = plan.rootful_overlay() {
        let map = userns::of_process(born.pid, &spec.ids).map_err(or_said)?;
        let map = map.as_ref().map(AsFd::as_fd);
        let images = !context.host.needs_trees();
        let layers = layers::clones(context.run_dir, &spec.layers, images, map)?;
        let layers = rootfs::numbers(&layers);
        made.push(rootfs::overlay_by_parent(&Overlay { layers: &layers, ..options })?);
        plan.open_mounts(spec, map, &mut made)?;
        let borrowed: Vec<_> = made.iter().map(AsFd::as_fd).collect();
        wire::send(ours.as_fd(), Message::Go, &borrowed).map_err(|_| talk(&ours, spec))?;
    }
    drop(made);

    // The end of the conversation is the start of the app: the kernel closes the app's end on its exec.
    // What is said first counts: only the last of it could be said by somebody who took the socket from the stub.
    let (mut app_id, mut terminal) = (None, None);
    loop {
        let mut fd = None;
        let received = wire::receive(ours.as_fd(), |_, got| fd = Some(got)).at(Step::Talk)?;
        match received.message {
            None => break,
            Some(Message::Failed(failure)) => return Err(crate::plan::explain(failure, spec)),
            Some(Message::App(_)) if app_id.is_none() => {
                app_id = received.pid.map(|pid| ProcessId { pid, start_time: start_time(pid).unwrap_or(0) });
            }
            Some(Message::Go) if app_id.is_none() && terminal.is_none() => terminal = fd,
            Some(Message::App(_) | Message::Go) => {}
        }
    }
    // Without a word from the app's process the box died on its way.
    let Some(app_id) = app_id else {
        return Err(LaunchError::Step { step: Step::Talk, source: std::io::ErrorKind::UnexpectedEof.into() });
    };
    let init = ProcessId { pid: born.pid, start_time: start_time(born.pid).unwrap_or(0) };
    Ok(Instance {
        target: ExecTarget {
            init,
            app: app_id,
            ids: spec.ids.clone(),
            process: spec.process.clone(),
            network: spec.network,
            privileged: spec.privileged,
            pids: spec.limits.pids,
            cgroups: cgroups.folders.clone(),
        },
        terminal,
        born,
        cgroups,
        _scratch: scratch,
        exit: None,
    })
}

/// The child is gone or says why: what it said comes first.
fn talk(socket: &OwnedFd, spec: &Spec) -> LaunchError {
    match wire::receive(socket.as_fd(), |_, _| ()) {
        Ok(wire::Received { message: Some(Message::Failed(failure)), .. }) => {
            crate::plan::explain(failure, spec)
        }
        _ => LaunchError::Step { step: Step::Talk, source: std::io::ErrorKind::UnexpectedEof.into() },
    }
}

/// What the child has open.
struct Inherited {
    socket: RawFd,
    asked: Asked,
    guard: RawFd,
    door: Option<RawFd>,
    dev: Option<RawFd>,
}

/// The child's side: pid 1. It never returns, and never unwinds into the parent's frames.
fn child(plan: &Plan, app: &App, fds: &Inherited) -> ! {
    let Err(failure) = first_process(plan, app, fds);
    wire::report_and_exit(fds.socket, failure)
}

fn first_process(plan: &Plan, app: &App, fds: &Inherited) -> Result<Infallible, Failure> {
    // Nothing of the parent's stays open: not its other instances, not its files (CVE-2016-9962, CVE-2024-21626).
    let &Inherited { socket, asked, guard, door, dev } = fds;
    let [a, b, c] = asked.kept(socket);
    let (d, e) = (door.unwrap_or(socket), dev.unwrap_or(socket));
    if stands(Defence::Descriptors) {
        sys::close_all_but(&[socket, guard, app.stub(), a, b, c, d, e]).at(Step::Descriptors)?;
    }
    crate::init::forget_arguments(plan.arguments, c"ply-init");
    // A signal that comes early waits for init, and modes are as given.
    rights::set_blocked(u64::MAX);
    // A session of its own, for init too: Ctrl-C at the caller's terminal is the caller's, or the app would be told
    // twice.
    let _ = rustix::process::setsid();
    rustix::process::umask(Mode::empty());

    // Before anything is started that would have to be counted too.
    if let Some(door) = door {
        sys::enter_cgroup(door).at(Step::JoinCgroup)?;
    }

    // What needs the rights of the namespace but nobody's ids, while the parent has the maps written: as a user that is
    // two programs of the system's long.
    // The cgroup namespace's root is where a process is when it makes it: only now we are where we belong.
    if stands(Defence::CgroupNamespace) {
        sys::unshare(libc::CLONE_NEWCGROUP).at(Step::CgroupNamespace)?;
    }
    rustix::system::sethostname(plan.hostname.to_bytes()).at(Step::Hostname)?;
    if plan.network != Network::Host {
        loopback_up().at(Step::Loopback)?;
    }
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .at(Step::Private)?;
    // The kernel mounts proc and sysfs in a user namespace only where an unmasked one is in sight (5.x:
    // mount_too_revealing), that is before the old root goes.
    let proc = filesystem(c"proc", &[], DATA).at(Step::Proc)?;
    let sys = match plan.network {
        // sysfs shows a network namespace, and the host's isn't ours to mount: a view of the host's, read-only.
        Network::Host if plan.user_namespace => {
            let host =
                rustix::fs::open(c"/sys", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at(Step::Sys)?;
            copy(&host, true).at(Step::Sys)?
        }
        _ => filesystem(c"sysfs", &[], DATA).at(Step::Sys)?,
    };
    let read_only = if stands(Defence::SysReadOnly) { READ_ONLY } else { 0 };
    sys::mount_setattr(sys.as_fd(), read_only | NO_SUID | NO_DEV | NO_EXEC, None, true).at(Step::Sys)?;

    // Until the maps are written nobody here is anybody. End of file: the parent died, and so do we.
    wait(socket)?;
    if plan.user_namespace {
        if plan.set_groups && stands(Defence::Groups) {
            rustix::thread::set_thread_groups(&[]).at(Step::Ids)?;
        }
        let (uid, gid) = (Uid::ROOT, Gid::ROOT);
        rustix::thread::set_thread_res_gid(gid, gid, gid).at(Step::Ids)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at(Step::Ids)?;
    }
    // From here on nobody inside may look into this process, which has the host's program in its memory. Not
    // earlier: the parent has to reach our /proc files to write the maps.
    if stands(Defence::NotDumpable) {
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .at(Step::Ids)?;
    }
    new_session_keyring();

    // What comes from the host is opened while its root is still ours, and as copies: they stay when it goes.
    let mut devices = [const { None }; MAX_DEVICES];
    for (index, (slot, device)) in devices.iter_mut().zip(&plan.devices).enumerate() {
        if dev.is_none() || device.number.is_none() {
            *slot = Some(device.open().at_item(Step::Device, index)?);
        }
    }

    // The root: made by the parent, or (rootless) here, where this process is root.
    let mut received = [const { None }; wire::MAX_FDS];
    let root = match plan.rootless_overlay() {
        None => {
            wait_for(socket, &mut received)?;
            received[0].take().ok_or(Errno::BADF).at(Step::Overlay)?
        }
        Some(options) => {
            let root = plan.open_layers(&options)?;
            for (index, (slot, mount)) in received[1..].iter_mut().zip(&plan.mounts).enumerate() {
                *slot = Some(mount.open_inside().at_item(Step::Source, index)?);
            }
            root
        }
    };
    // On top of the old root, into it, swap the two, and let the old one go with all that is mounted in it.
    rustix::mount::move_mount(
        &root,
        c"",
        rustix::fs::CWD,
        c"/",
        rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .at(Step::Pivot)?;
    rustix::process::fchdir(&root).at(Step::Pivot)?;
    rustix::process::pivot_root(c".", c".").at(Step::Pivot)?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH).at(Step::Pivot)?;
    rustix::process::chdir(c"/").at(Step::Pivot)?;
    let mut root = Root::new(root).at(Step::Root)?;

    // Scratch files while there is nothing but the overlay: they can land nowhere else.
    for (index, (path, mode, uid, gid)) in plan.folders.iter().enumerate() {
        let folder = root.folder(path, *mode).at_item(Step::Folder, index)?;
        own(&folder, *mode, *uid, *gid).at_item(Step::Folder, index)?;
    }
    for (index, (path, contents, mode)) in plan.files.iter().enumerate() {
        root.write(path, contents, *mode).at_item(Step::File, index)?;
    }
    for (index, (path, target)) in plan.links.iter().enumerate() {
        root.link(path, target).at_item(Step::Link, index)?;
    }
    // The temporary folders before the volumes, so that a volume may lie in one.
    let shm = temporary(plan, &mut root)?;
    for (index, mount) in plan.mounts.iter().enumerate() {
        let Some(source) = received[1 + index].take() else { continue };
        place(&mut root, mount, &source).at_item(Step::Target, index)?;
    }
    // The kernel's own come last, straight onto real folders of the root: nothing of an image or a volume can
    // lie over them, whatever it links to (CVE-2015-1335, CVE-2019-16884, CVE-2019-19921, CVE-2023-28642 and
    // CVE-2025-54867 put something before /proc).
    let (dev, pts) = make_dev(plan, &root, dev, &mut devices, &shm)?;
    let null = beneath(&dev, c"null", OFlags::PATH).at(Step::Mask)?;
    let place = inside_root(&root, c"proc").at(Step::Proc)?;
    attach(&proc, &place).at(Step::Proc)?;
    let place = inside_root(&root, c"sys").at(Step::Sys)?;
    attach(&sys, &place).at(Step::Sys)?;
    if let Ok(place) = beneath(&sys, c"fs/cgroup", OFlags::PATH | OFlags::DIRECTORY) {
        // A view of the box's own cgroup, read-only (CVE-2022-0492, CVE-2023-25809 wrote there).
        let mut attributes = DATA;
        if stands(Defence::CgroupReadOnly) {
            attributes |= rustix::mount::MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        if let Ok(cgroup) = filesystem(c"cgroup2", &[], attributes) {
            attach(&cgroup, &place).at(Step::Sys)?;
        }
    }
    if plan.network != Network::Host {
        crate::masks::low_ports(&proc).at(Step::Sysctl)?;
    }
    if plan.user_namespace && stands(Defence::Counts) {
        crate::masks::user_limits(&proc).at(Step::Sysctl)?;
    }
    if !plan.privileged && stands(Defence::Masks) {
        crate::masks::mask(&proc, &sys, &null)?;
    }

    let standard = match asked {
        Asked::Fds(fds) => Standard::Fds(fds),
        Asked::Terminal(size) => Standard::Terminal(terminal(plan, size, socket, &dev, &pts)?),
    };
    drop((proc, sys, dev, pts, null, shm, root));

    if !plan.init {
        say_app(socket)?;
        app.become_app(socket, standard, Some(guard));
    }
    // SAFETY: the child goes into `become_app` and never returns from here.
    match unsafe { sys::clone3(0, None) }.at(Step::Fork)? {
        Side::Child => {
            if let Err(failure) = say_app(socket) {
                wire::report_and_exit(socket, failure);
            }
            app.become_app(socket, standard, None)
        }
        Side::Parent { pid, .. } => crate::init::keep_house(pid, guard),
    }
}

/// The most devices: the seven of every box and those of the spec.
const MAX_DEVICES: usize = 64;

/// Waits for the parent's word.
fn wait(socket: RawFd) -> Result<(), Failure> {
    let received = wire::receive(borrow(socket), |_, _| ()).at(Step::Talk)?;
    rootfs::must(received.message == Some(Message::Go), Errno::PIPE).at(Step::Talk)
}

/// Waits for the parent's word and takes what comes with it.
fn wait_for(socket: RawFd, fds: &mut [Option<OwnedFd>]) -> Result<(), Failure> {
    let received = wire::receive(borrow(socket), |index, fd| {
        if let Some(slot) = fds.get_mut(index) {
            *slot = Some(fd);
        }
    })
    .at(Step::Talk)?;
    rootfs::must(received.message == Some(Message::Go), Errno::PIPE).at(Step::Talk)
}

/// The app's process names itself; the kernel adds its number, as the parent sees it.
pub(crate) fn say_app(socket: RawFd) -> Result<(), Failure> {
    wire::send(borrow(socket), Message::App(0), &[]).at(Step::Talk)
}

/// A session keyring of its own: keys aren't namespaced, and the caller's must not be reachable inside.
pub(crate) fn new_session_keyring() {
    const JOIN_SESSION_KEYRING: i32 = 1;
    if !stands(Defence::Keyring) {
        return;
    }
    // SAFETY: no name is passed. Kernels without keys have nothing to hide.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
}

fn loopback_up() -> sys::Sys<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the struct outlives the call.
    sys::check(i64::from(unsafe { libc::ioctl(raw(&socket), libc::SIOCSIFFLAGS, &raw const request) }))?;
    Ok(())
}

/// Gives a folder of scratch its mode and owner; a folder of the image that has them already stays untouched.
fn own(folder: &OwnedFd, mode: u32, uid: u32, gid: u32) -> sys::Sys<()> {
    let is = rustix::fs::fstat(folder)?;
    // The descriptor is a path only; the same folder by its number can be changed.
    let open = rustix::fs::openat(
        folder,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if (is.st_uid, is.st_gid) != (uid, gid) {
        rustix::fs::fchown(&open, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    if is.st_mode & 0o7777 != mode {
        rustix::fs::fchmod(&open, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Puts a volume or a link at its target.
fn place(root: &mut Root, mount: &Target, source: &OwnedFd) -> sys::Sys<()> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(source)?.st_mode);
    let place = root.mount_point(&mount.path, kind == rustix::fs::FileType::Directory)?;
    attach(source, &place)?;
    if mount.ours { root.own(source) } else { Ok(()) }
}

/// A real folder right below the root, made if the image has none; a link there is refused.
fn inside_root(root: &Root, name: &CStr) -> sys::Sys<OwnedFd> {
    match rustix::fs::mkdirat(&root.fd, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    if !stands(Defence::RealFolders) {
        let mut path = inside::Buffer::new();
        path.push(b"/")?;
        path.push(name.to_bytes())?;
        return root.folder(path.as_c_str()?, 0o755);
    }
    // A mount there (a volume whose target was a link to it) is crossed, and lies beneath what comes now.
    beneath(&root.fd, name, OFlags::PATH | OFlags::DIRECTORY)
}

/// `/tmp`, `/var/tmp` and what will be `/dev/shm`: three folders of one tmpfs, so that all of them together hold no
/// more than scratch may.
fn temporary(plan: &Plan, root: &mut Root) -> Result<OwnedFd, Failure> {
    let whole = filesystem(c"tmpfs", &plan.temporary(), PLAIN).at(Step::Tmp)?;
    // A part of it can be shown elsewhere only while it is attached itself (before 6.15).
    attach(&whole, &inside_root(root, c"dev").at(Step::Tmp)?).at(Step::Tmp)?;
    let part = |name: &CStr| -> sys::Sys<OwnedFd> {
        rustix::fs::mkdirat(&whole, name, Mode::from_raw_mode(0o1777))?;
        copy(&beneath(&whole, name, OFlags::PATH | OFlags::DIRECTORY)?, false)
    };
    let parts = [(c"tmp", c"/tmp"), (c"var-tmp", c"/var/tmp")];
    let parts = parts.map(|(name, path)| (part(name), path));
    let shm = part(c"shm").at(Step::Tmp)?;
    sys::mount_setattr(shm.as_fd(), NO_EXEC, None, false).at(Step::Tmp)?;
    rustix::mount::unmount(c"/dev", UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).at(Step::Tmp)?;
    for (part, path) in parts {
        let part = part.at(Step::Tmp)?;
        attach(&part, &root.mount_point(path, true).at(Step::Tmp)?).at(Step::Tmp)?;
        root.own(&part).at(Step::Tmp)?;
    }
    Ok(shm)
}

/// `/dev`: a tmpfs with the devices, a terminal multiplexer and shared memory of the box's own.
fn make_dev(
    plan: &Plan,
    root: &Root,
    own: Option<RawFd>,
    devices: &mut [Option<OwnedFd>; MAX_DEVICES],
    shm: &OwnedFd,
) -> Result<(OwnedFd, OwnedFd), Failure> {
    let place = inside_root(root, c"dev").at(Step::Dev)?;
    let dev = match own {
        // SAFETY: the child has the number from its parent, and nobody else closes it.
        Some(own) => unsafe { OwnedFd::from_raw_fd(own) },
        None => rootfs::dev().at(Step::Dev)?,
    };
    attach(&dev, &place).at(Step::Dev)?;
    for (index, (slot, device)) in devices.iter_mut().zip(&plan.devices).enumerate() {
        let Some(mount) = slot.take() else { continue };
        device.place(&dev, &mount).at_item(Step::Device, index)?;
    }
    for (name, target) in [
        (c"fd", c"/proc/self/fd"),
        (c"stdin", c"/proc/self/fd/0"),
        (c"stdout", c"/proc/self/fd/1"),
        (c"stderr", c"/proc/self/fd/2"),
        (c"ptmx", c"pts/ptmx"),
    ] {
        rustix::fs::symlinkat(target, &dev, name).at(Step::Dev)?;
    }
    let sub = |name: &CStr| {
        rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        beneath(&dev, name, OFlags::PATH | OFlags::DIRECTORY)
    };
    // The machine has 4096 terminals; one box doesn't get them all.
    let most = if stands(Defence::Sizes) { c"256" } else { c"1048576" };
    let options: &[(_, _)] = &[(c"ptmxmode", c"0666"), (c"mode", c"0620"), (c"max", most), (c"gid", c"5")];
    // Group 5 is last, and left out where it doesn't exist.
    let options = if plan.tty_group { options } else { &options[..3] };
    let pts = filesystem(
        c"devpts",
        options,
        rustix::mount::MountAttrFlags::MOUNT_ATTR_NOSUID | rustix::mount::MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .at(Step::Dev)?;
    attach(&pts, &sub(c"pts").at(Step::Dev)?).at(Step::Dev)?;
    attach(shm, &sub(c"shm").at(Step::Dev)?).at(Step::Dev)?;
    Ok((dev, pts))
}

/// A terminal out of the box's own devpts, also its console: the other end goes to the parent. (A terminal of
/// the host's would let the box push input into it: CVE-2017-5226, CVE-2023-28100; a console that is bound by its path
/// may be another file by then: CVE-2025-52565, CVE-2025-62161.)
fn terminal(
    plan: &Plan,
    size: WindowSize,
    socket: RawFd,
    dev: &OwnedFd,
    pts: &OwnedFd,
) -> Result<RawFd, Failure> {
    let (master, slave, number) = crate::terminal::make(pts, plan.user, size).at(Step::Terminal)?;
    let node = beneath(pts, number.as_c_str().at(Step::Terminal)?, OFlags::PATH).at(Step::Terminal)?;
    let console = inside::new_file(dev, c"console", 0o600).at(Step::Terminal)?;
    drop(console);
    let place = beneath(dev, c"console", OFlags::PATH).at(Step::Terminal)?;
    attach(&copy(&node, false).at(Step::Terminal)?, &place).at(Step::Terminal)?;
    wire::send(borrow(socket), Message::Go, &[master.as_fd()]).at(Step::Talk)?;
    let slave = above_standard(slave).at(Step::Terminal)?;
    let number = raw(&slave);
    // It stays open until this process has become the app, or init, which closes everything.
    std::mem::forget(slave);
    Ok(number)
}
