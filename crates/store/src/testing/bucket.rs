//! A bucket of S3 in this process: a server that counts, loses answers, ignores conditions, dies and comes back, as a test asks.
//!
//! It keeps what it is given and signs nothing off: whoever asks is let in. `bucket/http.rs` reads requests and writes answers,
//! `bucket/service.rs` is the part of S3 that stores use.

mod date;
mod http;
mod service;

use http::{Answer, Request};
use service::Service;
use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A server with one bucket, which lives until it is dropped.
#[derive(Debug)]
pub struct BucketServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The server, while it is up.
    up: Option<Up>,
}

#[derive(Debug)]
struct Up {
    stopped: Arc<AtomicBool>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    service: Mutex<Service>,
    requests: Mutex<Vec<String>>,
    mishaps: Mutex<Vec<Mishap>>,
    connections: Mutex<Vec<TcpStream>>,
}

/// Something that goes wrong once, with the first request that it fits.
#[derive(Debug, Clone)]
pub struct Mishap {
    /// How the request line begins or what it contains, such as `PUT` or `COMMIT`; all of these.
    pub request: Vec<&'static str>,
    /// What happens.
    pub kind: MishapKind,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MishapKind {
    /// The request is carried out, and the connection ends before its answer.
    LoseAnswer,
    /// As [`MishapKind::LoseAnswer`], and the object is there without what was to be kept with it.
    Tear,
    /// The request is not carried out; the answer has this number and code.
    Refuse(u16, &'static str),
    /// The server dies before it carries out the request: see [`BucketServer::restart`].
    Die,
}

impl BucketServer {
    /// Starts a server on a free port of this machine.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let up = Some(serve(listener, shared.clone()));
        Self {
            address,
            shared,
            up,
        }
    }

    /// The address of a folder of the bucket.
    pub fn url(&self, folder: &str) -> String {
        format!("s3://bucket/{folder}")
    }

    /// The settings with which a store reaches this server.
    pub fn options(&self) -> Vec<(String, String)> {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            setting("endpoint", &format!("http://{}", self.address)),
            setting("access_key_id", "AK"),
            setting("secret_access_key", "hush"),
            setting("region", "us-east-1"),
        ]
    }

    /// The same settings as variables of the environment of another process.
    pub fn environment(&self) -> Vec<(String, String)> {
        let options = self.options().into_iter();
        options
            .map(|(name, value)| (format!("AWS_{}", name.to_uppercase()), value))
            .collect()
    }

    /// The requests so far, such as `GET /bucket/run/COMMIT`, since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.requests))
    }

    /// Lets something go wrong.
    pub fn add(&self, mishap: Mishap) {
        lock(&self.shared.mishaps).push(mishap);
    }

    /// Forgets that there are conditions.
    pub fn ignore_conditions(&self) {
        lock(&self.shared.service).ignores_conditions = true;
    }

    /// Makes all unfinished uploads older.
    pub fn age_uploads(&self, by: Duration) {
        lock(&self.shared.service).age_uploads(by);
    }

    /// How many uploads are unfinished.
    pub fn upload_count(&self) -> usize {
        lock(&self.shared.service).uploads.len()
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.shared.service).objects.keys().cloned().collect()
    }

    /// Kills the server: nothing listens any more, and all connections end.
    pub fn stop(&mut self) {
        let Some(up) = self.up.take() else {
            return;
        };
        self.shared.die(&up.stopped, self.address);
        up.acceptor.join().expect("it does not panic");
        self.shared.hang_up();
    }

    /// Whether the server is up: it may have died of a mishap.
    pub fn is_up(&self) -> bool {
        let up = self.up.as_ref();
        up.is_some_and(|up| !up.stopped.load(Ordering::SeqCst))
    }

    /// Starts the server again, with what it had, at the same address.
    ///
    /// # Panics
    ///
    /// If somebody took the address.
    pub fn restart(&mut self) {
        self.stop();
        let listener = TcpListener::bind(self.address).expect("the port is still free");
        self.up = Some(serve(listener, self.shared.clone()));
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(listener: TcpListener, shared: Arc<Shared>) -> Up {
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = stopped.clone();
    let acceptor = thread::spawn(move || {
        for connection in listener.incoming() {
            if seen.load(Ordering::SeqCst) {
                return;
            }
            let Ok(connection) = connection else { continue };
            let (shared, seen) = (shared.clone(), seen.clone());
            if let Ok(copy) = connection.try_clone() {
                lock(&shared.connections).push(copy);
            }
            thread::spawn(move || shared.talk(connection, &seen));
        }
    });
    Up { stopped, acceptor }
}

impl Shared {
    /// Answers the requests of a connection until it ends.
    fn talk(&self, connection: TcpStream, stopped: &AtomicBool) {
        let Ok(mut writer) = connection.try_clone() else {
            return;
        };
        let _ = connection.set_nodelay(true);
        let mut reader = BufReader::new(connection);
        while let Some(request) = Request::read(&mut reader) {
            if stopped.load(Ordering::SeqCst) {
                return;
            }
            let answer = match self.answer(&request) {
                Outcome::Answer(answer) => answer,
                Outcome::Lost => {
                    let _ = writer.shutdown(Shutdown::Both);
                    return;
                }
                Outcome::Dead => {
                    let address = writer.local_addr().expect("it is connected");
                    self.die(stopped, address);
                    return;
                }
            };
            if answer.write(&request, &mut writer).is_err() {
                return;
            }
        }
    }

    /// Nobody listens any more, and all connections end.
    fn die(&self, stopped: &AtomicBool, address: SocketAddr) {
        stopped.store(true, Ordering::SeqCst);
        // Wakes whoever waits for a connection.
        let _ = TcpStream::connect(address);
        self.hang_up();
    }

    fn hang_up(&self) {
        for connection in lock(&self.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn answer(&self, request: &Request) -> Outcome {
        let line = format!("{} {}", request.method, request.target);
        let mishap = {
            let mut mishaps = lock(&self.mishaps);
            let fits = |mishap: &Mishap| mishap.request.iter().all(|part| line.contains(part));
            let first = mishaps.iter().position(fits);
            first.map(|first| mishaps.remove(first).kind)
        };
        lock(&self.requests).push(line);
        match mishap {
            Some(MishapKind::Refuse(status, code)) => {
                Outcome::Answer(Answer::refusal(status, code))
            }
            Some(MishapKind::LoseAnswer) => {
                let _lost = lock(&self.service).answer(request);
                Outcome::Lost
            }
            Some(MishapKind::Tear) => {
                let mut torn = request.clone();
                torn.headers.remove("x-amz-meta-cairn");
                let _lost = lock(&self.service).answer(&torn);
                Outcome::Lost
            }
            Some(MishapKind::Die) => Outcome::Dead,
            None => Outcome::Answer(lock(&self.service).answer(request)),
        }
    }
}

/// What becomes of a request.
enum Outcome {
    Answer(Answer),
    /// Nobody hears the answer.
    Lost,
    Dead,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
