//! Several things at once, with answers in the order of the questions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many processors there are for this process.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to each item on at most `threads` threads. The order of the results is that of the items, whichever ended first.
pub(crate) fn each<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads.clamp(1, items.len().max(1));
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let one_thread = || {
        let mut own = Vec::new();
        while let Some((at, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
        {
            own.push((at, work(item)));
        }
        done.lock().unwrap_or_else(|e| e.into_inner()).extend(own);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(one_thread);
        }
        one_thread();
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_keep_the_order_of_the_questions() {
        let items: Vec<u64> = (0..100).collect();
        let slow_first = |n: &u64| {
            std::thread::sleep(std::time::Duration::from_micros(200 - 2 * n));
            n * n
        };
        for threads in [1, 2, 7, 1000] {
            let expected: Vec<u64> = items.iter().map(|n| n * n).collect();
            assert_eq!(super::each(threads, &items, slow_first), expected);
        }
        assert!(super::each(4, &[] as &[u64], slow_first).is_empty());
    }
}
