//! Threads that work behind somebody's back.

/// How nice a thread in the background is: beside ordinary threads it gets about a tenth of a core, alone all of it.
const NICENESS: i32 = 10;

/// The class of I/O that is served when no other waits, as `ioprio_set` counts them: best effort, its last level.
const IO_PRIORITY: u64 = (2 << 13) | 7;

/// The number of the system call that sets the priority of I/O, which has no wrapper in the C library.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const IOPRIO_SET: i64 = 251;
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
const IOPRIO_SET: i64 = 30;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

/// Makes the calling thread give way to others on processors and disks, for as long as it lives. Where that cannot be had, it goes on as it is.
pub fn yield_to_others() {
    // On Linux a thread has a priority of its own, under its own number.
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), NICENESS);
    // SAFETY: `ioprio_set(IOPRIO_WHO_PROCESS, this thread, priority)` reads no memory and changes the calling thread only.
    #[cfg(target_os = "linux")]
    let _ = unsafe { syscall(IOPRIO_SET, 1_i64, 0_i64, IO_PRIORITY) };
}
