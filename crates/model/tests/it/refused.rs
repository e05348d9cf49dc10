//! Batches that do not fit are refused before anything is computed.

use crate::samples::{batch, config};
use cairn_collectives::threads;
use cairn_kernels::Pool;
use cairn_model::{Batch, Block, Error, Keep, Options, Pass, blocks};

fn forward(change: impl Fn(&mut Batch) + Sync, block: usize) -> Error {
    let config = config("LlamaForCausalLM", "{}");
    let mut batch = batch(13);
    change(&mut batch);
    let result = threads::run(1, threads::Options::default(), |group| {
        let pool = Pool::new(1);
        let pass = Pass {
            pool: &pool,
            tp: &*group,
            sequence_parallel: false,
            batch: &batch,
            seed: 0,
            step: 0,
            training: true,
        };
        let block: &dyn Block<f32> = &*blocks(&config, &Options::default()).remove(block);
        let weights = vec![0.1; block.parameter_count()];
        let rows = vec![0.5; 80];
        block
            .forward(&pass, &weights, rows.into(), Keep::Everything)
            .map(|_| ())
    });
    result.unwrap_err()
}

#[test]
fn tokens_outside_of_the_vocabulary_are_named() {
    let error = forward(|batch| batch.tokens[3] = 13, 0);
    assert_eq!(error.to_string(), "token 13 is not in the vocabulary of 13");
    assert!(error.hint().unwrap().contains("tokenizer"));
    let error = forward(|batch| batch.targets[9] = 1 << 40, 3);
    assert_eq!(
        error.to_string(),
        "token 1099511627776 is not in the vocabulary of 13"
    );
}

#[test]
fn parts_of_a_batch_that_do_not_fit_are_named() {
    let message = |change: fn(&mut Batch), block| forward(change, block).to_string();
    assert_eq!(
        message(|batch| batch.length = usize::MAX, 0),
        format!("the batch's tokens: 10 elements instead of {}", usize::MAX)
    );
    assert_eq!(
        message(|batch| batch.positions.truncate(9), 1),
        "the batch's positions: 9 elements instead of 10"
    );
    assert_eq!(
        message(|batch| batch.documents.clear(), 1),
        "the batch's documents: 0 elements instead of 10"
    );
    assert_eq!(
        message(|batch| batch.samples.push(1), 1),
        "the batch's samples: 3 elements instead of 2"
    );
    assert_eq!(
        message(|batch| batch.targets.push(1), 3),
        "the batch's targets: 11 elements instead of 10"
    );
    assert_eq!(
        message(|batch| batch.sequences = 3, 3),
        "the batch's tokens: 10 elements instead of 15"
    );
}
