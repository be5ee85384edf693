//! Links: host paths bound inside. Pure but for one look at each host path, which the caller passes in.

use crate::RunError;
use crate::options::{LinkFlag, absolute};
use crate::plan::PlanInput;
use crate::user::User;
use serde::Serialize;
use std::path::{Component, Path, PathBuf};

/// What stands at a host path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMeta {
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Whether it is a character or block device.
    pub is_device: bool,
}

impl HostMeta {
    /// Looks at `path`, following links.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let meta = path.metadata()?;
        let kind = meta.file_type();
        Ok(Self {
            uid: meta.uid(),
            gid: meta.gid(),
            is_device: kind.is_char_device() || kind.is_block_device(),
        })
    }
}

/// Who asked for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkOrigin {
    /// `--link`.
    Flag,
    /// `ply.dev.toml`.
    DevOverlay,
    /// The image, granted by `--grant-links`.
    Image,
}

/// One host path bound inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedLink {
    /// The absolute path on the host.
    pub host: PathBuf,
    /// The absolute path inside.
    pub at: String,
    /// Whether nothing may be written through it.
    pub read_only: bool,
    /// Who asked for it.
    pub origin: LinkOrigin,
    /// The owner's user id on the host.
    #[serde(skip)]
    pub uid: u32,
    /// The owner's group id on the host.
    #[serde(skip)]
    pub gid: u32,
}

/// The links of a run in the order of their paths inside, and the requests that aren't granted.
pub(crate) fn plan_links(
    input: &PlanInput<'_>,
    prefix: &str,
    user: &User,
    notices: &mut Vec<String>,
) -> Result<(Vec<PlannedLink>, Vec<String>), RunError> {
    let mut links: Vec<PlannedLink> = Vec::new();
    let mut requested = Vec::new();
    let mut add = |flag: &LinkFlag, against: &Path, origin: LinkOrigin| -> Result<(), RunError> {
        let host = clean_host(&against.join(&flag.host));
        let at = if flag.at.starts_with('/') { flag.at.clone() } else { format!("{prefix}/{}", flag.at) };
        let at = absolute(&at).ok_or_else(|| {
            RunError::usage(format!("a link can't be at {at:?}"), "write a path below / without ..")
        })?;
        let meta = (input.host_stat)(&host).map_err(|why| RunError::Io {
            what: "a link's host path can't be used",
            path: host.clone(),
            why,
        })?;
        let (uid, gid) = (meta.uid, meta.gid);
        // A later one at the same place replaces an earlier: flags over the overlay over the image.
        links.retain(|l| l.at != at);
        links.push(PlannedLink { host, at, read_only: flag.read_only, origin, uid, gid });
        Ok(())
    };
    for request in &input.manifest.run.link_requests {
        let flag =
            LinkFlag { host: request.host.clone(), at: request.at.clone(), read_only: request.read_only };
        if input.options.grant_links {
            add(&flag, Path::new("/"), LinkOrigin::Image)?;
        } else {
            requested.push(flag.to_string());
        }
    }
    if let Some((overlay, dir)) = input.overlay {
        for text in &overlay.links {
            add(&text.parse()?, dir, LinkOrigin::DevOverlay)?;
        }
    }
    for flag in &input.options.links {
        add(flag, input.cwd, LinkOrigin::Flag)?;
    }
    links.sort_by(|a, b| a.at.cmp(&b.at));
    if !requested.is_empty() {
        notices.push(format!(
            "the image asks for host paths that it doesn't get: {} (--grant-links gives them)",
            requested.join(", ")
        ));
    }
    if !links.is_empty() && !input.host.root && user.uid != 0 {
        notices.push(format!(
            "linked files belong to root inside, and it runs as {}: it may not be able to write them (--user root can)",
            user.name
        ));
    }
    Ok((links, requested))
}

/// A path without `.`, and with `..` taken literally only where it can be without following links.
fn clean_host(path: &Path) -> PathBuf {
    path.components().filter(|c| *c != Component::CurDir).collect()
}
