//! The tables of a config that tell the loop what to do.

use super::problem::Problem;
use super::reader::Reader;
use crate::parallel::axis_size;
use crate::settings::{
    Checkpoints, LearningRate, Optimizer, Parallel, Precision, Recompute, Settings, Shape,
};
use cairn_checkpoint::retention::Abandoned;
use cairn_checkpoint::{Error as CheckpointError, parse_age};
use cairn_sharding::Mesh;
use std::ops::Bound;
use std::str::FromStr;

const PRECISIONS: &[(&str, Precision)] = &[("f32", Precision::F32), ("bf16", Precision::Bf16)];
const ABANDONED: &[(&str, Abandoned)] = &[
    ("newest", Abandoned::Newest),
    ("all", Abandoned::All),
    ("none", Abandoned::None),
];
const RECOMPUTE: &[(&str, Recompute)] = &[
    ("nothing", Recompute::Nothing),
    ("selected", Recompute::Selected),
    ("everything", Recompute::Everything),
];
const SHAPES: &[(&str, Shape)] = &[
    ("constant", Shape::Constant),
    ("linear", Shape::Linear),
    ("cosine", Shape::Cosine),
    ("stable", Shape::Stable { decay: 0 }),
    ("polynomial", Shape::Polynomial { power: 1.0 }),
];

/// What the loop is told, and the tokens of a sequence.
pub(super) fn settings(root: &Reader<'_>) -> (Settings, usize) {
    let mut settings = Settings {
        seed: root.optional("seed").unwrap_or(0),
        steps: root.required("steps"),
        learning_rate: learning_rate(root),
        checkpoints: checkpoints(root),
        ..Settings::default()
    };
    optimizer(root, &mut settings);
    parallel(root, &mut settings);
    let length = batch(root, &mut settings);
    (settings, length)
}

/// Fills in the sequences of a step and in how many parts a rank takes them; returns the tokens of each.
fn batch(root: &Reader<'_>, settings: &mut Settings) -> usize {
    let table = root.table("batch");
    settings.tokens = table.within("tokens", 1.., "at least 1");
    let by_tokens = table.has("tokens");
    let needed: &[&str] = match by_tokens {
        true => &["length"],
        false => &["sequences", "length"],
    };
    for key in needed.iter().filter(|key| !table.has(key)) {
        table.missing(key);
    }
    let sequences = table.within("sequences", 1.., "at least 1");
    settings.batch = sequences.or(settings.tokens).unwrap_or(1);
    let length = table.within("length", 1.., "at least 1").unwrap_or(1);
    if by_tokens {
        parts_of_tokens(&table, settings, length);
        table.finish();
        return length;
    }
    let share = settings.batch / axis_size(&settings.parallel.mesh, "dp");
    if let Some(size) = table.within("micro_batch", 1_usize.., "at least 1") {
        settings.parallel.micro_batches = (share / size).max(1);
        if share > 0 && !share.is_multiple_of(size) {
            let what = format!("a rank's {share} sequences are no micro-batches of {size}");
            let problem = Problem::at(&table.place("micro_batch"), what);
            table.problem(problem.hint(format!("possible are {}", divisors(share))));
        }
    }
    table.finish();
    length
}

/// Fills in how a rank takes sequences whose number differs from step to step.
fn parts_of_tokens(table: &Reader<'_>, settings: &mut Settings, length: usize) {
    let parts = table.within("micro_batches", 1.., "at least 1");
    settings.parallel.micro_batches = parts.unwrap_or(1);
    if table.node("micro_batch").is_some() {
        let what = "`batch.micro_batch` does not go with `batch.tokens`";
        let hint = "say in how many parts a rank takes its sequences: `batch.micro_batches`";
        table.problem(Problem::at(&table.place("micro_batch"), what).hint(hint));
    }
    if settings.tokens.is_some_and(|tokens| tokens < length) {
        let what =
            format!("`batch.tokens` has no room for a sequence of {length} (`batch.length`)");
        table.problem(Problem::at(&table.place("tokens"), what));
    }
}

/// `1, 2, 4`: what a number is a multiple of; the greatest few.
fn divisors(number: usize) -> String {
    const MOST: usize = 8;
    let all = (1..=number)
        .rev()
        .filter(|part| number.is_multiple_of(*part));
    let mut few: Vec<String> = all.take(MOST).map(|part| part.to_string()).collect();
    few.reverse();
    few.join(", ")
}

fn checkpoints(root: &Reader<'_>) -> Checkpoints {
    let table = root.table("checkpoints");
    // Where they lie is told elsewhere.
    for key in ["folder", "durable", "per_node"] {
        table.node(key);
    }
    let checkpoints = Checkpoints {
        every: table.within("every", 1.., "at least 1"),
        keep_last: table.within("keep_last", 1.., "at least 1"),
        keep_every: table.within("keep_every", 1.., "at least 1"),
        keep_best: rules(&table, "keep_best"),
        keep_within: rules(&table, "keep_within"),
        keep_abandoned: table.choice("keep_abandoned", ABANDONED, Abandoned::Newest),
        keep_grace: grace(&table),
        max_failed: table.optional("max_failed"),
        ema: table.within("ema", 0.0..1.0, "at least 0 and less than 1"),
        delta: table.optional("delta").unwrap_or_default(),
        compress: table.optional("compress").unwrap_or_default(),
    };
    table.finish();
    checkpoints
}

/// The rules of retention under `key`.
fn rules<T: FromStr<Err = CheckpointError>>(table: &Reader<'_>, key: &'static str) -> Vec<T> {
    let texts: Vec<String> = table.optional(key).unwrap_or_default();
    let read = |text: String| match text.parse::<T>() {
        Ok(rule) => Some(rule),
        Err(error) => {
            let problem = Problem::at(&table.place(key), error.to_string());
            table.problem(problem.hint(error.hint().unwrap_or_default()));
            None
        }
    };
    texts.into_iter().filter_map(read).collect()
}

/// The seconds that files of deleted steps stay.
fn grace(table: &Reader<'_>) -> u64 {
    let Some(text) = table.optional::<String>("keep_grace") else {
        return 0;
    };
    parse_age(&text).map_or_else(
        |expected| {
            let what = format!("`{text}` is no length of time");
            table.problem(Problem::at(&table.place("keep_grace"), what).hint(expected));
            0
        },
        |age| age.as_secs(),
    )
}

fn optimizer(root: &Reader<'_>, settings: &mut Settings) {
    let table = root.table("optimizer");
    let share = "at least 0 and less than 1";
    let weight_decay = table
        .within("weight_decay", 0.0.., "at least 0")
        .unwrap_or(0.1);
    settings.optimizer = match table.choice("kind", &[("adamw", false), ("sgd", true)], false) {
        true => Optimizer::Sgd {
            momentum: table.within("momentum", 0.0..1.0, share).unwrap_or(0.9),
            nesterov: table.optional("nesterov").unwrap_or(false),
            weight_decay,
        },
        false => Optimizer::AdamW {
            betas: betas(&table),
            epsilon: table
                .within(
                    "epsilon",
                    (Bound::Excluded(0.0), Bound::Unbounded),
                    "more than 0",
                )
                .unwrap_or(1e-8),
            weight_decay,
        },
    };
    // No limit is told as 0.
    let clip = table.within("clip", 0.0.., "at least 0").unwrap_or(1.0);
    settings.clip = (clip > 0.0).then_some(clip);
    settings.max_skipped = table
        .optional("max_skipped")
        .unwrap_or(settings.max_skipped);
    // Where state goes is told elsewhere.
    table.node("offload");
    table.node("offload_folder");
    table.finish();
}

fn betas(table: &Reader<'_>) -> (f64, f64) {
    let (first, second) = table.optional("betas").unwrap_or((0.9, 0.95));
    let possible = 0.0..1.0;
    if !possible.contains(&first) || !possible.contains(&second) {
        let what = format!(
            "`optimizer.betas` must be at least 0 and less than 1, not `{first}, {second}`"
        );
        table.problem(Problem::at(&table.place("betas"), what));
    }
    (first, second)
}

fn learning_rate(root: &Reader<'_>) -> LearningRate {
    let table = root.table("learning_rate");
    let peak = table.within("peak", 0.0.., "at least 0").unwrap_or(3e-4);
    let shape = match table.choice("shape", SHAPES, Shape::Cosine) {
        Shape::Stable { .. } => Shape::Stable {
            decay: table.required("decay"),
        },
        Shape::Polynomial { .. } => Shape::Polynomial {
            power: table.within("power", 0.0.., "at least 0").unwrap_or(1.0),
        },
        shape => shape,
    };
    let rate = LearningRate {
        peak,
        end: table
            .within("end", 0.0.., "at least 0")
            .unwrap_or(peak / 10.0),
        warmup: table.optional("warmup").unwrap_or(0),
        shape,
    };
    table.finish();
    rate
}

fn parallel(root: &Reader<'_>, settings: &mut Settings) {
    let table = root.table("parallel");
    let text = table.optional::<String>("mesh");
    let mesh = text.map_or(Ok(Mesh::single()), |text| text.parse::<Mesh>());
    let mesh = mesh.unwrap_or_else(|error| {
        table.problem(Problem::at(&table.place("mesh"), error.to_string()));
        Mesh::single()
    });
    let zero: u64 = table.within("zero", 0..=3, "0, 1, 2 or 3").unwrap_or(0);
    settings.parallel = Parallel {
        mesh: match table.within("ranks", 1.., "at least 1") {
            Some(ranks) => with_ranks(&table, mesh, ranks),
            None => mesh,
        },
        sequence_parallel: table.optional("sequence_parallel").unwrap_or(false),
        zero: u8::try_from(zero).unwrap_or(0),
        chunks: table.within("chunks", 1.., "at least 1").unwrap_or(1),
        micro_batches: 1,
        blocks: table.optional("blocks"),
    };
    settings.precision = table.choice("dtype", PRECISIONS, Precision::F32);
    settings.recompute = table.choice("recompute", RECOMPUTE, Recompute::Nothing);
    table.finish();
}

/// The mesh with as many replicas along `dp` as so many ranks make.
fn with_ranks(table: &Reader<'_>, mesh: Mesh, ranks: usize) -> Mesh {
    let others = axis_size(&mesh, "pp") * axis_size(&mesh, "tp");
    if !ranks.is_multiple_of(others) {
        let what =
            format!("{ranks} ranks cannot hold a model that is cut in {others} parts by `{mesh}`");
        let less = ranks - ranks % others;
        let hint = match less {
            0 => format!("use {others} ranks"),
            _ => format!("use {less} or {} ranks", less + others),
        };
        table.problem(Problem::at(&table.place("ranks"), what).hint(hint));
        return mesh;
    }
    let replicas = ("dp", ranks / others);
    let has_replicas = mesh.axes().iter().any(|axis| axis.name == "dp");
    let axes = mesh.axes().iter().map(|axis| match axis.name.as_str() {
        "dp" => replicas,
        name => (name, axis.size),
    });
    let outermost = (!has_replicas).then_some(replicas);
    Mesh::new(outermost.into_iter().chain(axes)).unwrap_or(mesh.clone())
}
