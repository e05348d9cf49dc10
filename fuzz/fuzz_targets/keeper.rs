//! Clients that say anything to a keeper, in any order, and die: it holds no more than it may, and in the end nothing.

#![no_main]

use cairn_checkpoint::keeper::Snapshot;
use cairn_keeper::Limits;
use cairn_keeper::testing::Desk;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// A machine with room for a few images.
const IMAGES: u64 = 6;
const RUNS: [&str; 3] = ["a", "b", ""];
const CLIENTS: u8 = 4;

#[derive(Debug, Arbitrary)]
enum Event<'a> {
    /// Frames as they come through a socket.
    Frames {
        client: u8,
        bytes: &'a [u8],
    },
    /// A head, whatever it says.
    Head {
        client: u8,
        head: &'a str,
        body: &'a [u8],
    },
    Begin {
        client: u8,
        run: u8,
        step: u8,
        writer: u8,
        world: u8,
        len: Len,
        replace: bool,
    },
    /// Something about a snapshot, by its number.
    About {
        client: u8,
        what: What,
        snapshot: u8,
        body: &'a [u8],
    },
    Held {
        client: u8,
        run: u8,
    },
    Leave {
        client: u8,
    },
    Settle {
        written: bool,
    },
    Forget,
}

#[derive(Debug, Arbitrary)]
enum Len {
    None,
    Bytes(u16),
    Images(u8),
    Any(u64),
}

#[derive(Debug, Arbitrary)]
enum What {
    Captured,
    Written,
    Committed,
    Abandon,
    Fetch,
}

fuzz_target!(|events: Vec<Event>| {
    let most = IMAGES * Snapshot::chunk_bytes() as u64;
    let limits = Limits {
        max_bytes: most,
        max_run_bytes: most / 2,
    };
    let mut desk = Desk::new(limits);
    // Parts are no memory of captures: they are not counted before they come, and each is there once.
    let mut parts = 0;
    for event in events {
        parts += hear(&mut desk, event);
        assert!(desk.used_bytes() <= most + parts);
    }
    for client in 0..CLIENTS {
        desk.leave(client.into());
    }
    while desk.used_bytes() > 0 {
        let before = desk.used_bytes();
        desk.settle(true);
        desk.forget();
        desk.forget();
        if desk.used_bytes() == before && !desk.has_orphans() {
            panic!("{before} bytes are held for nobody");
        }
    }
});

/// Lets something happen, and returns the bytes of parts that may have come with it.
fn hear(desk: &mut Desk, event: Event) -> u64 {
    match event {
        Event::Frames { client, mut bytes } => {
            let len = bytes.len() as u64;
            while let Some((_, rest)) = desk.hear(number(client), bytes) {
                bytes = rest;
            }
            return len;
        }
        Event::Head { client, head, body } => {
            desk.say(number(client), head.as_bytes(), body);
            return body.len() as u64;
        }
        Event::Begin {
            client,
            run,
            step,
            writer,
            world,
            len,
            replace,
        } => {
            let about = json!({
                "run": RUNS[usize::from(run) % RUNS.len()], "step": step % 4, "attempt": (step / 64).to_string(),
                "writer": writer % 3, "world": world % 4, "len_bytes": len.bytes(), "replace": replace,
            });
            say(desk, client, json!({"ask": "begin", "about": about}), &[]);
        }
        Event::About {
            client,
            what,
            snapshot,
            body,
        } => {
            let what = match what {
                What::Captured => "captured",
                What::Written => "written",
                What::Committed => "committed",
                What::Abandon => "abandon",
                What::Fetch => "fetch",
            };
            say(
                desk,
                client,
                json!({"ask": what, "snapshot": snapshot}),
                body,
            );
            return body.len() as u64;
        }
        Event::Held { client, run } => {
            let run = RUNS[usize::from(run) % RUNS.len()];
            say(desk, client, json!({"ask": "held", "run": run}), &[]);
        }
        Event::Leave { client } => desk.leave(number(client)),
        // A part of four bytes is made for it.
        Event::Settle { written } => {
            desk.settle(written);
            return 4;
        }
        Event::Forget => desk.forget(),
    }
    0
}

fn number(client: u8) -> u64 {
    (client % CLIENTS).into()
}

fn say(desk: &mut Desk, client: u8, head: Value, body: &[u8]) {
    let reply = desk.say(number(client), head.to_string().as_bytes(), body);
    assert!(reply.is_some(), "it is a request: {head}");
    desk.say(number(client), br#"{"ask":"status"}"#, &[]);
}

impl Len {
    fn bytes(&self) -> u64 {
        let image = Snapshot::chunk_bytes() as u64;
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => (*bytes).into(),
            Self::Images(count) => image * u64::from(count % 4),
            Self::Any(bytes) => *bytes,
        }
    }
}
