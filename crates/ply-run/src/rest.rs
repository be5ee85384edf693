//! A run parent that goes on gives back to the system what only its start needed: the heap's free pages, and the
//! pages of the program itself that only the start touched (they are in the page cache, should they be needed).

/// From here on all threads share one heap: they take turns anyway, and each heap of its own costs a start.
pub(crate) fn one_heap() {
    // SAFETY: a plain call that sets a number.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives it all back.
pub(crate) fn rest() {
    // SAFETY: a plain call that gives free heap pages back.
    unsafe { libc::malloc_trim(0) };
    for (start, length) in clean_program_pages().unwrap_or_default() {
        // SAFETY: a read-only mapping of a file none of whose pages was ever written: dropped pages come back from
        // the file as they were.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
}

/// The read-only file mappings of this process without a written page (relocated data has some), as address and
/// length.
fn clean_program_pages() -> Option<Vec<(usize, usize)>> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut found = Vec::new();
    let mut at: Option<(usize, usize)> = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next()?;
        if let Some((start, end)) = first.split_once('-') {
            let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
            let read_only = fields.next().is_some_and(|rights| rights == "r-xp" || rights == "r--p");
            let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
            at = (read_only && is_file).then(|| (start, end - start));
        } else if first == "Anonymous:" && fields.next() == Some("0") {
            found.extend(at.take());
        }
    }
    Some(found)
}
