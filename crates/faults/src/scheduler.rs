//! Who goes next, by seed, and how time passes when nobody can.

use crate::disk::ProcessId;
use crate::random::Random;
use crate::world::World;
use cairn_checkpoint::Clock;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When worlds begin, in seconds after 1970.
const BEGIN_SECONDS: u64 = 1_800_000_000;

/// The worlds to run, and the one that runs.
pub(crate) struct Stage {
    worlds: Mutex<Worlds>,
}

type Next = Box<dyn FnMut() -> Option<Arc<World>> + Send>;

struct Worlds {
    next: Next,
    current: Option<Arc<World>>,
}

impl Stage {
    pub(crate) fn new(next: impl FnMut() -> Option<Arc<World>> + Send + 'static) -> Arc<Self> {
        let worlds = Worlds {
            next: Box::new(next),
            current: None,
        };
        Arc::new(Self {
            worlds: Mutex::new(worlds),
        })
    }

    /// The world that runs, or ran last.
    pub(crate) fn current(&self) -> Option<Arc<World>> {
        let worlds = self.worlds.lock().unwrap_or_else(PoisonError::into_inner);
        worlds.current.clone()
    }

    fn advance(&self) -> Option<Arc<World>> {
        let mut worlds = self.worlds.lock().unwrap_or_else(PoisonError::into_inner);
        worlds.current = (worlds.next)();
        worlds.current.clone()
    }
}

/// Chooses by the seed of the world that runs.
pub(crate) struct Seeded {
    stage: Arc<Stage>,
    turn: Option<(Arc<World>, Random)>,
    /// How often of a hundred times a thread that can go on does.
    stickiness: u64,
}

impl Seeded {
    pub(crate) fn new(stage: Arc<Stage>) -> Self {
        Self {
            stage,
            turn: None,
            stickiness: 0,
        }
    }
}

impl Scheduler for Seeded {
    fn new_execution(&mut self) -> Option<Schedule> {
        let world = self.stage.advance()?;
        let mut random = Random::new(world.case.seed, "order");
        self.stickiness = random.pick(&[0, 50, 90, 98]);
        let schedule = Schedule::new(world.case.seed);
        self.turn = Some((world, random));
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let (world, random) = self.turn.as_mut()?;
        let mut state = world.lock();
        let now = state.now;
        let wakes = |task: &&Task| state.asleep.get(&usize::from(task.id())).copied();
        let is_awake = |task: &&Task| wakes(task).is_none_or(|until| until <= now);
        let awake: Vec<TaskId> = runnable
            .iter()
            .filter(|task| is_awake(task))
            .map(|task| task.id())
            .collect();
        let chosen = match current.filter(|task| !is_yielding && awake.contains(task)) {
            Some(task) if random.chance(self.stickiness) => task,
            _ if !awake.is_empty() => random.pick(&awake),
            // Everybody waits: time passes until the first wakes.
            _ => runnable.iter().min_by_key(|task| wakes(task))?.id(),
        };
        if let Some(until) = state.asleep.remove(&usize::from(chosen)) {
            state.now = now.max(until);
        }
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.turn.as_mut().map_or(0, |(_, random)| random.next())
    }
}

/// Lets others run.
pub(crate) fn pass() {
    shuttle::thread::yield_now();
}

/// Sleeps in the time of the world.
pub(crate) fn sleep(world: &World, duration: Duration) {
    let task = usize::from(shuttle::current::me());
    {
        let mut state = world.lock();
        let until = state.now + duration;
        state.asleep.insert(task, until);
    }
    shuttle::thread::yield_now();
}

/// The clock of a process.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    pub(crate) world: Arc<World>,
    pub(crate) process: ProcessId,
}

impl Clock for SimulatedClock {
    fn elapsed(&self) -> Duration {
        self.world.lock().now
    }

    fn now(&self) -> SystemTime {
        let state = self.world.lock();
        let offset = state.processes[self.process].clock_offset;
        let jump = Duration::from_secs(offset.unsigned_abs());
        let time = time_of_day(state.now);
        if offset < 0 { time - jump } else { time + jump }
    }

    fn sleep(&self, duration: Duration) {
        sleep(&self.world, duration);
    }
}

/// The time of day, by the clock of the store.
pub(crate) fn time_of_day(now: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(BEGIN_SECONDS) + now
}
