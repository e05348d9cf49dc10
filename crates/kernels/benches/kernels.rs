//! Measures each kernel on one thread and on two, at the sizes of a small model: width 512, 8 heads, gates of 1376, 8192 tokens, 4 sequences of 256.
//!
//! `cargo bench -p cairn-kernels` prints a line for each kernel; an argument keeps those whose names contain it. Products and attention count arithmetic,
//! the rest counts bytes read and written, so that they stand beside the speed of memory.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it finds")]

use cairn_kernels::adamw::{AdamW, AdamWState};
use cairn_kernels::attention::{Attention, Gradients, Heads, Inputs, Kept};
use cairn_kernels::cross_entropy::CrossEntropy;
use cairn_kernels::dropout::Dropout;
use cairn_kernels::embedding::Embedding;
use cairn_kernels::gemm::Write;
use cairn_kernels::linear::Linear;
use cairn_kernels::norm::RmsNorm;
use cairn_kernels::random::Stream;
use cairn_kernels::rotary::{Rotary, Scaling};
use cairn_kernels::{Pool, elementwise, swiglu};
use std::time::{Duration, Instant};

const SEQUENCES: usize = 4;
const LENGTH: usize = 256;
const TOKENS: usize = SEQUENCES * LENGTH;
const WIDTH: usize = 512;
const HEADS: usize = 8;
const GATES: usize = 1376;
const VOCABULARY: usize = 8192;
/// How long each kernel is repeated; the fastest time counts.
const REPEAT: Duration = Duration::from_millis(300);

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench");
    let bench = Bench {
        filter: filter.unwrap_or_default(),
        pools: [Pool::new(1), Pool::new(2)],
    };
    println!("{:<28} {:>12} {:>12}", "kernel", "1 thread", "2 threads");
    products(&bench);
    attention(&bench);
    norms_and_gates(&bench);
    losses(&bench);
    flat(&bench);
}

struct Bench {
    filter: String,
    pools: [Pool; 2],
}

impl Bench {
    /// Prints how many `unit`s a second `work` does, which does `amount` of them.
    fn measure(&self, name: &str, amount: usize, unit: &str, mut work: impl FnMut(&Pool)) {
        if !name.contains(&self.filter) {
            return;
        }
        let speeds = self.pools.each_ref().map(|pool| {
            let (start, mut best) = (Instant::now(), Duration::MAX);
            while start.elapsed() < REPEAT {
                let before = Instant::now();
                work(pool);
                best = best.min(before.elapsed());
            }
            amount as f64 / best.as_secs_f64() / 1e9
        });
        println!(
            "{name:<28} {:>12.1} {:>12.1} G{unit}/s",
            speeds[0], speeds[1]
        );
    }
}

fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; len];
    Stream::new(seed).fill_normal(&Pool::new(2), 0, &mut numbers);
    numbers
}

fn products(bench: &Bench) {
    for (name, inputs, outputs) in [
        ("width→width", WIDTH, WIDTH),
        ("width→gates", WIDTH, GATES),
        ("gates→width", GATES, WIDTH),
        ("width→vocabulary", WIDTH, VOCABULARY),
    ] {
        let size = Linear {
            tokens: TOKENS,
            inputs,
            outputs,
        };
        let work = 2 * TOKENS * inputs * outputs;
        let mut x = random(1, TOKENS * inputs);
        let mut weight = random(2, inputs * outputs);
        let mut y = random(3, TOKENS * outputs);
        bench.measure(&format!("linear {name}"), work, "FLOP", |pool| {
            size.forward(pool, &x, &weight, None, &mut y);
        });
        bench.measure(&format!("  of input {name}"), work, "FLOP", |pool| {
            size.input_gradient(pool, &y, &weight, Write::Replace, &mut x);
        });
        bench.measure(&format!("  of weight {name}"), work, "FLOP", |pool| {
            size.weight_gradient(pool, &x, &y, &mut weight);
        });
    }
}

fn attention(bench: &Bench) {
    let heads = Heads {
        queries: HEADS,
        keys: HEADS,
        dim: WIDTH / HEADS,
    };
    let attention = Attention {
        heads,
        length: LENGTH,
        documents: &[0; TOKENS],
        scale: 0.125,
    };
    let [queries, keys, values, slope] = [1, 2, 3, 4].map(|seed| random(seed, TOKENS * WIDTH));
    let inputs = Inputs {
        queries: &queries,
        keys: &keys,
        values: &values,
    };
    // Two products of half of a square of scores, and five in the backward.
    let work = SEQUENCES * LENGTH * (LENGTH + 1) * WIDTH;
    let mut output = vec![0.0; TOKENS * WIDTH];
    let mut log_sums = vec![0.0; attention.log_sums_len()];
    bench.measure("attention", 2 * work, "FLOP", |pool| {
        attention.forward(pool, inputs, &mut output, &mut log_sums);
    });
    attention.forward(&bench.pools[1], inputs, &mut output, &mut log_sums);
    let mut gradients = [queries.clone(), keys.clone(), values.clone()];
    bench.measure("  backward", 5 * work, "FLOP", |pool| {
        let [queries, keys, values] = &mut gradients;
        let gradients = Gradients {
            queries,
            keys,
            values,
        };
        let kept = Kept {
            output: &output,
            log_sums: &log_sums,
        };
        attention.backward(pool, inputs, kept, &slope, gradients);
    });
    let rotary = Rotary::new(WIDTH / HEADS, 1e4, Scaling::None);
    let positions: Vec<u32> = (0..).take(TOKENS).collect();
    bench.measure("rotary angles", 4 * TOKENS * WIDTH / HEADS, "B", |pool| {
        rotary.angles::<f32>(pool, &positions);
    });
    let angles = rotary.angles(&bench.pools[0], &positions);
    bench.measure("rotary", 8 * TOKENS * WIDTH, "B", |pool| {
        angles.rotate(pool, HEADS, &mut output);
    });
}

fn norms_and_gates(bench: &Bench) {
    let (x, slope) = (random(1, TOKENS * WIDTH), random(2, TOKENS * WIDTH));
    let (weight, mut gradient) = (random(3, WIDTH), vec![0.0; WIDTH]);
    let (mut y, mut inverse) = (x.clone(), vec![0.0; TOKENS]);
    let norm = RmsNorm {
        weight: &weight,
        epsilon: 1e-5,
    };
    bench.measure("norm", 8 * x.len(), "B", |pool| {
        norm.forward(pool, &x, &mut y, &mut inverse);
    });
    bench.measure("  backward", 20 * x.len(), "B", |pool| {
        norm.backward(pool, &x, &inverse, &slope, &mut y, &mut gradient);
    });
    let [gate, up, slope] = [1, 2, 3].map(|seed| random(seed, TOKENS * GATES));
    let [mut y, mut z] = [gate.clone(), up.clone()];
    bench.measure("swiglu", 12 * y.len(), "B", |pool| {
        swiglu::forward(pool, &gate, &up, &mut y);
    });
    bench.measure("  backward", 20 * y.len(), "B", |pool| {
        swiglu::backward(pool, &gate, &up, &slope, &mut y, &mut z);
    });
}

fn losses(bench: &Bench) {
    let rule = CrossEntropy {
        first: 0,
        width: VOCABULARY,
        z_loss: 0.0,
    };
    let mut logits = random(1, TOKENS * VOCABULARY);
    let targets: Vec<i64> = (0..).take(TOKENS).collect();
    let [mut maxima, mut sums, mut target_logits] = [(); 3].map(|()| vec![0.0; TOKENS]);
    bench.measure("loss maxima", 4 * logits.len(), "B", |pool| {
        rule.row_max(pool, &logits, &mut maxima);
    });
    bench.measure("loss sums", 4 * logits.len(), "B", |pool| {
        rule.row_sums(
            pool,
            &logits,
            &targets,
            &maxima,
            &mut sums,
            &mut target_logits,
        );
    });
    let (log_sums, slopes) = (vec![9.5; TOKENS], vec![1e-3; TOKENS]);
    bench.measure("loss gradient", 8 * logits.len(), "B", |pool| {
        rule.gradient(pool, &targets, &log_sums, &slopes, &mut logits);
    });
    let embedding = Embedding {
        first: 0,
        width: WIDTH,
    };
    let tokens: Vec<u32> = (0..).step_by(7).take(TOKENS).collect();
    let (mut table, mut rows) = (random(1, VOCABULARY * WIDTH), vec![0.0; TOKENS * WIDTH]);
    bench.measure("embedding", 8 * rows.len(), "B", |pool| {
        embedding.forward(pool, &table, &tokens, &mut rows);
    });
    bench.measure("  backward", 12 * rows.len(), "B", |pool| {
        embedding.backward(pool, &tokens, &rows, &mut table);
    });
}

fn flat(bench: &Bench) {
    const LEN: usize = 4 << 20;
    let [gradient, mut master, mut exp_avg] = [1, 2, 3].map(|seed| random(seed, LEN));
    let (mut exp_avg_sq, mut bits) = (vec![1.0; LEN], vec![0; LEN]);
    bench.measure("add", 12 * LEN, "B", |pool| {
        elementwise::add(pool, &gradient, &mut master);
    });
    bench.measure("sum of squares", 4 * LEN, "B", |pool| {
        assert!(elementwise::sum_of_squares(pool, &gradient) > 0.0);
    });
    bench.measure("all finite", 4 * LEN, "B", |pool| {
        assert!(elementwise::all_finite(pool, &gradient));
    });
    bench.measure("narrow", 6 * LEN, "B", |pool| {
        elementwise::narrow(pool, &gradient, &mut bits);
    });
    bench.measure("widen", 6 * LEN, "B", |pool| {
        elementwise::widen(pool, &bits, &mut master);
    });
    let dropout = Dropout {
        stream: Stream::new(1),
        rate: 0.1,
    };
    bench.measure("dropout", 8 * LEN, "B", |pool| {
        dropout.apply(pool, 0, &mut master);
    });
    bench.measure("normal numbers", 4 * LEN, "B", |pool| {
        Stream::new(1).fill_normal(pool, 0, &mut master);
    });
    let rule = AdamW {
        learning_rate: 1e-4,
        betas: [0.9, 0.95],
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 10,
        gradient_scale: 1.0,
    };
    bench.measure("adamw", 28 * LEN, "B", |pool| {
        let state = AdamWState {
            master: &mut master,
            exp_avg: &mut exp_avg,
            exp_avg_sq: &mut exp_avg_sq,
        };
        rule.update(pool, &gradient, state, None);
    });
}
