//! The one thread of a process that calls MPI.
//!
//! It sends what it is told to, and takes in whatever arrives, all the time: also while its own messages wait to be received, so that two ranks that
//! send each other much never wait for each other.

use crate::{Error, Options};
use cairn_collectives::messages::Mailbox;
use mpi::Threading;
use mpi::point_to_point::MatchedReceiveVec;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How often the thread looks for messages, without a pause, after one has come.
const EAGER_LOOKS: u32 = 200;

/// The pause between two looks when nothing has come for a while.
const PAUSE: Duration = Duration::from_micros(50);

/// The end of a message.
const LAST: i32 = 0;
/// A part of a message, of which more follows.
const MORE: i32 = 1;
/// Nothing more will come from this rank.
const GOODBYE: i32 = 2;

/// What the thread is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message to a rank.
    Send {
        /// To whom.
        to: usize,
        /// What.
        message: Vec<u8>,
    },
    /// Say goodbye, wait for the others to do so, and stop.
    Leave,
}

/// Rank and size, or why there are none.
pub(crate) type Started = Result<(usize, usize), Error>;

/// Starts MPI, says so, and serves until all ranks have left.
pub(crate) fn serve(
    options: &Options,
    orders: &Receiver<Order>,
    mailbox: &Mailbox,
    answer: &Sender<Started>,
) {
    let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Funneled) else {
        // Who waits for the answer is gone only if its process is.
        let _ = answer.send(Err(Error::Started));
        return;
    };
    if threading < Threading::Funneled {
        let _ = answer.send(Err(Error::Threads));
        return;
    }
    let world = universe.world();
    let count = |number: i32| usize::try_from(number).expect("MPI counts from 0");
    let (rank, size) = (count(world.rank()), count(world.size()));
    let mut server = Server {
        world: &world,
        mailbox,
        rank,
        message_bytes: options.message_bytes.max(1),
        orders,
        waiting: VecDeque::new(),
        patience: options.patience,
        deadline: None,
        begun: vec![Vec::new(); size],
        left: (0..size).map(|other| other == rank).collect(),
    };
    let _ = answer.send(Ok((rank, size)));
    server.follow();
    server.leave();
}

struct Server<'a> {
    world: &'a SimpleCommunicator,
    mailbox: &'a Mailbox,
    rank: usize,
    message_bytes: usize,
    orders: &'a Receiver<Order>,
    /// Messages that came while others were being sent.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// How long the others are waited for once this rank is to leave.
    patience: Duration,
    /// Until when that is.
    deadline: Option<Instant>,
    /// What has come of a message of each rank of which more follows.
    begun: Vec<Vec<u8>>,
    /// Who has said goodbye, or is this rank itself.
    left: Vec<bool>,
}

impl Server<'_> {
    /// Does what it is told, until it is told to leave.
    fn follow(&mut self) {
        let mut looks = 0;
        loop {
            if self.waiting.is_empty() && self.deadline.is_none() {
                let order = match looks < EAGER_LOOKS {
                    true => self.orders.try_recv().ok(),
                    false => self.orders.recv_timeout(PAUSE).ok(),
                };
                order.into_iter().for_each(|order| self.take(order));
            }
            self.listen();
            let batch: Vec<(usize, Vec<u8>)> = self.waiting.drain(..).collect();
            self.send(&batch);
            if self.deadline.is_some() && self.waiting.is_empty() {
                return;
            }
            let moved = !batch.is_empty() | self.receive();
            looks = if moved { 0 } else { looks.saturating_add(1) };
            if !moved {
                thread::yield_now();
            }
        }
    }

    /// Hears what this rank is told, without waiting.
    fn listen(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.take(order);
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Send { to, message } => self.waiting.push_back((to, message)),
            Order::Leave => {
                let deadline = Instant::now() + self.patience;
                self.deadline.get_or_insert(deadline);
            }
        }
    }

    /// Ends all ranks if this one is to leave and has waited for long enough: somebody hangs, and nothing else ends him.
    fn end_if_late(&self) {
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() > deadline)
        {
            self.world.abort(1);
        }
    }

    /// Sends messages, and takes in others' meanwhile.
    fn send(&mut self, batch: &[(usize, Vec<u8>)]) {
        let mut parts: Vec<(usize, i32, &[u8])> = Vec::new();
        for (to, message) in batch.iter().filter(|(to, _)| !self.left[*to]) {
            let count = message.len().div_ceil(self.message_bytes).max(1);
            for index in 0..count {
                let begin = index * self.message_bytes;
                let end = message.len().min(begin + self.message_bytes);
                let tag = if index + 1 == count { LAST } else { MORE };
                parts.push((*to, tag, &message[begin..end]));
            }
        }
        self.send_parts(&parts);
    }

    fn send_parts(&mut self, parts: &[(usize, i32, &[u8])]) {
        mpi::request::scope(|scope| {
            let mut pending = Vec::with_capacity(parts.len());
            for (to, tag, bytes) in parts {
                let to = i32::try_from(*to).expect("MPI counts ranks with 31 bits");
                let process = self.world.process_at_rank(to);
                pending.push(process.immediate_send_with_tag(scope, *bytes, *tag));
            }
            while !pending.is_empty() {
                pending = pending
                    .into_iter()
                    .filter_map(|request| request.test().err())
                    .collect();
                if !self.receive() {
                    thread::yield_now();
                }
                // A rank that hangs takes nothing in, and this one may be told to leave meanwhile.
                self.listen();
                self.end_if_late();
            }
        });
    }

    /// Takes in everything that has arrived; tells whether something had.
    fn receive(&mut self) -> bool {
        let mut any = false;
        while let Some(arrived) = self.world.any_process().immediate_matched_probe() {
            any = true;
            let (from, tag) = (arrived.1.source_rank(), arrived.1.tag());
            let from = usize::try_from(from).expect("MPI counts from 0");
            let (bytes, _) = arrived.matched_receive_vec::<u8>();
            let begun = &mut self.begun[from];
            match tag {
                GOODBYE => self.left[from] = true,
                MORE => begun.extend(bytes),
                _ if begun.is_empty() => self.mailbox.deliver(from, bytes),
                _ => {
                    begun.extend(bytes);
                    self.mailbox.deliver(from, std::mem::take(begun));
                }
            }
        }
        any
    }

    /// Says goodbye and waits for that of all others; those who do not say it in time are ended.
    fn leave(&mut self) {
        // Also those who have left: they wait for this goodbye.
        let others = (0..self.left.len()).filter(|rank| *rank != self.rank);
        let all: Vec<(usize, i32, &[u8])> = others.map(|rank| (rank, GOODBYE, &[][..])).collect();
        self.send_parts(&all);
        while !self.left.iter().all(|left| *left) {
            if !self.receive() {
                thread::sleep(PAUSE);
            }
            self.end_if_late();
        }
    }
}
