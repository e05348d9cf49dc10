//! Threads that work behind somebody's back.

/// How nice a thread in the background is: beside ordinary threads it gets about a tenth of a core, alone all of it.
const NICENESS: i32 = 10;

/// Makes the calling thread give way to others, for as long as it lives. Where that cannot be had, it goes on as it is.
pub fn yield_to_others() {
    // On Linux a thread has a priority of its own, under its own number.
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), NICENESS);
}
