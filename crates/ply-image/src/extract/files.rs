//! The content of files, on several threads. Files that share a fragment block are one job, so that it is
//! unpacked once; a large file is several.

use super::Attributes;
use super::beneath::Beneath;
use super::plan::{Plan, PlanFile};
use crate::error::{ImageError, Result};
use crate::image::{BlockReader, Blocks, Body, Image, Piece};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A file of more blocks than this is written by several threads, this many blocks at a time.
const PART: u64 = 32;
/// The most files in one job.
const BATCH: usize = 256;

enum Job {
    /// Whole files: a range of the order.
    Files(Range<usize>),
    /// Blocks of one large file, which exists already.
    Part(u32, Range<u64>),
}

/// Writes every file of one layer, and returns how many bytes that was, holes not counted.
pub(super) fn write_all(
    (layer, image): (usize, &Image),
    plan: &Plan,
    beneath: &Beneath,
    attributes: &Attributes<'_>,
    threads: usize,
) -> Result<u64> {
    let block_size = image.block_size();
    let count = |file: &PlanFile| file.inode.stat.size.div_ceil(block_size);
    // In the order of the data, so that what lies together in the image is read together.
    let mut order: Vec<u32> =
        (0..plan.files.len() as u32).filter(|at| plan.files[*at as usize].layer == layer).collect();
    order.sort_by_key(|at| place(&plan.files[*at as usize]));
    let mut jobs = Vec::new();
    let mut large = Vec::new();
    let mut from = 0;
    while from < order.len() {
        let file = &plan.files[order[from] as usize];
        if count(file) > PART {
            large.push(order[from]);
            let blocks = count(file);
            let parts = (0..blocks).step_by(PART as usize).map(|n| n..(n + PART).min(blocks));
            // A part that is all hole is nothing to write: a sparse file of a terabyte has a quarter of a million.
            let parts = parts.filter(|part| !is_hole(file, part));
            jobs.extend(parts.map(|part| Job::Part(order[from], part)));
            from += 1;
            continue;
        }
        let key = place(file).0;
        let same = |at: &&u32| {
            let next = &plan.files[**at as usize];
            place(next).0 == key && count(next) <= PART
        };
        let end = from + order[from..].iter().take(BATCH).take_while(same).count().max(1);
        jobs.push(Job::Files(from..end));
        from = end;
    }
    for at in &large {
        create(plan, beneath, &plan.files[*at as usize])?
            .set_len(plan.files[*at as usize].inode.stat.size)
            .map_err(|e| error(plan, beneath, &plan.files[*at as usize], e))?;
    }
    let shared = Shared {
        image,
        plan,
        beneath,
        attributes,
        order: &order,
        jobs: &jobs,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        first_error: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(|| shared.work());
        }
        shared.work();
    });
    if let Some(error) = shared.first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    for at in large {
        let file = &plan.files[at as usize];
        finish(plan, beneath, attributes, file, &open(plan, beneath, file)?)?;
    }
    Ok(shared.bytes.into_inner())
}

/// Where a file's data is: the fragment block, or the first block; then where in it.
fn place(file: &PlanFile) -> (u64, u32) {
    match &file.inode.body {
        Body::File(Blocks { sizes, tail: Some(tail), .. }) if sizes.is_empty() => (tail.start, tail.offset),
        Body::File(blocks) if !blocks.sizes.is_empty() => (blocks.place(0).0, 0),
        _ => (0, 0),
    }
}

/// Whether these blocks of a file are all a hole.
fn is_hole(file: &PlanFile, part: &Range<u64>) -> bool {
    let Body::File(blocks) = &file.inode.body else { return false };
    part.clone().all(|n| blocks.sizes.get(n as usize) == Some(&0))
}

struct Shared<'a> {
    image: &'a Image,
    plan: &'a Plan,
    beneath: &'a Beneath,
    attributes: &'a Attributes<'a>,
    order: &'a [u32],
    jobs: &'a [Job],
    next: AtomicUsize,
    bytes: AtomicU64,
    failed: AtomicBool,
    first_error: Mutex<Option<ImageError>>,
}

impl Shared<'_> {
    fn work(&self) {
        let mut reader = BlockReader::new(self.image);
        while !self.failed.load(Ordering::Relaxed)
            && let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            match self.job(job, &mut reader) {
                Ok(bytes) => {
                    self.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    }

    fn job(&self, job: &Job, reader: &mut BlockReader<'_>) -> Result<u64> {
        let mut bytes = 0;
        match job {
            Job::Files(range) => {
                for at in &self.order[range.clone()] {
                    let file = &self.plan.files[*at as usize];
                    let out = create(self.plan, self.beneath, file)?;
                    let blocks = file.inode.stat.size.div_ceil(self.image.block_size());
                    bytes += self.blocks(file, 0..blocks, &out, reader)?;
                    finish(self.plan, self.beneath, self.attributes, file, &out)?;
                }
            }
            Job::Part(at, blocks) => {
                let file = &self.plan.files[*at as usize];
                let out = open(self.plan, self.beneath, file)?;
                bytes += self.blocks(file, blocks.clone(), &out, reader)?;
            }
        }
        Ok(bytes)
    }

    fn blocks(
        &self,
        file: &PlanFile,
        range: Range<u64>,
        out: &File,
        reader: &mut BlockReader<'_>,
    ) -> Result<u64> {
        let Body::File(blocks) = &file.inode.body else { return Ok(0) };
        let size = file.inode.stat.size;
        let mut bytes = 0;
        let mut ends_in_hole = false;
        for n in range.clone() {
            match reader.block(size, blocks, n)? {
                Piece::Zeros(_) => ends_in_hole = true,
                Piece::Data(data) => {
                    let at = n * self.image.block_size();
                    out.write_all_at(data, at).map_err(|e| error(self.plan, self.beneath, file, e))?;
                    bytes += data.len() as u64;
                    ends_in_hole = false;
                }
            }
        }
        if ends_in_hole && range.start == 0 {
            out.set_len(size).map_err(|e| error(self.plan, self.beneath, file, e))?;
        }
        Ok(bytes)
    }
}

fn create(plan: &Plan, beneath: &Beneath, file: &PlanFile) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_with(plan, beneath, file, flags)
}

fn open(plan: &Plan, beneath: &Beneath, file: &PlanFile) -> Result<File> {
    open_with(plan, beneath, file, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC)
}

fn open_with(plan: &Plan, beneath: &Beneath, file: &PlanFile, flags: OFlags) -> Result<File> {
    let dir = beneath.dir(plan, file.dir)?;
    let opened = rustix::fs::openat(&dir, &file.name, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(|e| beneath.error("create", plan, file.dir, &file.name, e))
}

fn finish(
    plan: &Plan,
    beneath: &Beneath,
    attributes: &Attributes<'_>,
    file: &PlanFile,
    out: &File,
) -> Result<()> {
    attributes
        .apply(out.as_fd(), file.layer, &file.inode.stat, file.inode.xattr)?
        .map_err(|e| beneath.error("set the attributes of", plan, file.dir, &file.name, e))
}

fn error(plan: &Plan, beneath: &Beneath, file: &PlanFile, e: std::io::Error) -> ImageError {
    match rustix::io::Errno::from_io_error(&e) {
        Some(errno) => beneath.error("write", plan, file.dir, &file.name, errno),
        None => ImageError::io("write", std::path::Path::new(&file.name))(e),
    }
}
