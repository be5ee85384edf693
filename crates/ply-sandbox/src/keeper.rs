//! The thread that makes the boxes. A parent-death signal fires when the *thread* that cloned the child ends
//! (prctl(2)), so the thread must live as long as the process does; callers may be on any thread of a pool.
//! It shares no working directory with the others, so that namespaces can be joined from it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

type Job = Box<dyn FnOnce() + Send>;

/// The keeper of this process. After a fork the number differs, and the child makes one of its own.
static KEEPER: Mutex<Option<(u32, Sender<Job>)>> = Mutex::new(None);

/// Runs `work` on the keeper and waits for it.
pub(crate) fn on_keeper<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (answer, wait) = channel();
    let work = crate::defences::carry(work);
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let _ = answer.send(catch_unwind(AssertUnwindSafe(work)));
    });
    // SAFETY: only the lifetime changes. The job is either run to its end before `recv` returns, or dropped
    // unrun with the channel, and then `recv` fails at once: nothing borrowed is used after this function.
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    let mut keeper = KEEPER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let me = std::process::id();
    let sender = match &*keeper {
        Some((owner, sender)) if *owner == me => sender.clone(),
        _ => {
            let sender = start();
            *keeper = Some((me, sender.clone()));
            sender
        }
    };
    drop(keeper);
    if let Err(back) = sender.send(job) {
        // The keeper never ends while the process lives; without it the work is done here.
        (back.0)();
    }
    match wait.recv() {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => unreachable!("the keeper answers every job"),
    }
}

fn start() -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    let spawned =
        std::thread::Builder::new().name("ply-keeper".into()).stack_size(512 << 10).spawn(move || {
            let _ = crate::sys::unshare(libc::CLONE_FS);
            for job in jobs {
                job();
            }
        });
    // Without a thread the receiver is gone, and `on_keeper` works in place.
    drop(spawned);
    sender
}
