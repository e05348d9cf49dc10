//! The thread that uploads one step after another, in the order in which they were saved.

use super::{Route, Upload, marks, pending::pending};
use crate::Error;
use crate::commit::{Attempt, Patience};
use crate::error::chain;
use crate::outcome::stopped;
use crate::saving::Saving;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The first and the longest pause after a try that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long a run that is being closed waits for the files of other ranks, so that the last step of a training is durable when it ends.
const CLOSING: Duration = Duration::from_secs(30);

/// How soon a pause ends when the run is closed.
const SLICE: Duration = Duration::from_millis(100);

/// Uploads one step after another. A step that fails is tried again and again, and those after it wait; what is left when the run is closed is
/// tried once more and then left to the next launch.
#[derive(Debug)]
pub(crate) struct Uploader {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    route: Route,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// The oldest first; the thread is at the first one.
    jobs: VecDeque<Job>,
    /// Uploads that were given up, for whoever looks next.
    failed: Vec<Arc<Upload>>,
    closing: bool,
}

#[derive(Debug, Clone)]
struct Job {
    upload: Arc<Upload>,
    /// The save that must end well first, if it is of this launch.
    saving: Option<Saving>,
}

impl Uploader {
    pub(crate) fn new(route: Route) -> Self {
        let shared = Shared {
            route,
            queue: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            thread: Mutex::default(),
        }
    }

    /// Takes up what earlier launches left, the first time it is called; `except` for the attempt that is about to be saved.
    pub(crate) fn start(&self, except: Option<&Attempt>) -> Result<(), Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return Ok(());
        }
        let route = &self.shared.route;
        let left = pending(route, except.map(|attempt| attempt.name.as_str()))?;
        marks::mark_tier(&route.tiers)?;
        let jobs = left.into_iter().map(|upload| Job {
            upload: Arc::new(upload),
            saving: None,
        });
        self.shared.lock().jobs.extend(jobs);
        let shared = self.shared.clone();
        *thread = Some(thread::spawn(move || shared.run()));
        Ok(())
    }

    /// Uploads what `saving` saves, once it has.
    pub(crate) fn push(&self, saving: Saving) {
        if let Some(upload) = saving.upload().cloned() {
            let saving = Some(saving);
            self.shared.lock().jobs.push_back(Job { upload, saving });
            self.shared.changed.notify_all();
        }
    }

    /// A failure that nobody has looked at yet.
    pub(crate) fn unseen_failure(&self) -> Option<Error> {
        let queue = self.shared.lock();
        let trying = queue.jobs.front().map(|job| &job.upload);
        queue.failed.iter().chain(trying).find_map(|upload| {
            let failure = upload.unseen_failure(&self.shared.route)?;
            let (step, source) = (upload.step(), failure);
            Some(Error::NotUploaded { step, source })
        })
    }

    /// Waits until everything is uploaded.
    ///
    /// # Errors
    /// The first failure, of those that come after this call too. Uploading goes on.
    pub(crate) fn wait(&self) -> Result<(), Arc<Error>> {
        let waiting: Vec<Job> = self.shared.lock().jobs.iter().cloned().collect();
        for job in waiting {
            let saved = job.saving.is_none_or(|saving| saving.peek().is_ok());
            if saved && let Err(source) = job.upload.wait() {
                let step = job.upload.step();
                return Err(Arc::new(Error::NotUploaded { step, source }));
            }
        }
        let failure = self.unseen_failure();
        failure.map_or(Ok(()), |error| Err(Arc::new(error)))
    }
}

impl Drop for Uploader {
    /// What this rank has to upload is uploaded. Others' files are waited for a while, and not at all if they were missing before.
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closing = true;
        let front = queue.jobs.front();
        let patience = match front.is_some_and(|job| job.upload.is_missing_others()) {
            true => Duration::ZERO,
            false => CLOSING,
        };
        drop(queue);
        let Patience { clock, cutoff, .. } = &self.shared.route.patience;
        cutoff.set(clock.elapsed() + patience);
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uploads until the run is closed and everything was tried.
    fn run(&self) {
        cairn_device::yield_to_others();
        let mut pause = PAUSES.0;
        while let Some(job) = self.next() {
            if self.is_over(&job) {
                self.lock().jobs.pop_front();
                pause = PAUSES.0;
                continue;
            }
            self.rest(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Pauses, by the clock of the run, but no longer than until it is closed.
    fn rest(&self, pause: Duration) {
        let clock = &self.route.patience.clock;
        let until = clock.elapsed() + pause;
        while !self.lock().closing {
            let left = until.saturating_sub(clock.elapsed());
            if left.is_zero() {
                return;
            }
            clock.sleep(left.min(SLICE));
        }
    }

    /// The job to do now; none if there will be no more.
    fn next(&self) -> Option<Job> {
        let queue = self.lock();
        let waited = self
            .changed
            .wait_while(queue, |queue| queue.jobs.is_empty() && !queue.closing);
        let queue = waited.unwrap_or_else(PoisonError::into_inner);
        queue.jobs.front().cloned()
    }

    /// Tries a job; whether there is nothing more to do for it.
    fn is_over(&self, job: &Job) -> bool {
        if job
            .saving
            .as_ref()
            .is_some_and(|saving| saving.peek().is_err())
        {
            return true;
        }
        // If the run is being closed already, this is the last try.
        let is_last = self.lock().closing;
        let tried = catch_unwind(AssertUnwindSafe(|| job.upload.carry(&self.route)));
        let tried = tried.unwrap_or_else(|panic| Err(stopped(panic.as_ref())));
        let give_up = tried.as_ref().is_err_and(is_final);
        if let Err(Error::BasesGone { .. }) = tried {
            // The next save must not refer to what this one referred to.
            self.route.bases.set(None);
        }
        let done = tried.is_ok();
        if done {
            self.prune();
        }
        let now = self.route.patience.clock.elapsed();
        job.upload.tell(tried, now);
        if done {
            return true;
        }
        if give_up || is_last {
            self.lock().failed.push(job.upload.clone());
        }
        if !give_up {
            self.hold_up_others(&job.upload);
        }
        if !give_up && is_last {
            // Those behind it are left to the next launch, too: whoever finds a step durable counts on those before it.
            self.lock().jobs.truncate(1);
        }
        give_up || is_last
    }

    /// Nobody should wait in vain for what comes after a failure.
    fn hold_up_others(&self, failed: &Upload) {
        if let Some(Err(failure)) = failed.result() {
            let queue = self.lock();
            let others = queue.jobs.iter().skip(1);
            others.for_each(|job| job.upload.wait_behind(failed.step(), failure.clone()));
        }
    }

    fn prune(&self) {
        if let Err(error) = marks::prune(&self.route) {
            tracing::warn!(error = %chain(&error), "old steps stay on the fast tier");
        }
    }
}

/// Whether trying again in this launch makes no sense: the step is another's, or what was to be uploaded is not there any more.
fn is_final(error: &Error) -> bool {
    let is_taken = matches!(error, Error::StepTaken { .. } | Error::WriterFailed { .. });
    let is_lost = matches!(error, Error::Stopped { .. } | Error::BasesGone { .. });
    is_taken || is_lost || error.is_damage()
}
