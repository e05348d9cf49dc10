//! What is kept changes memory, and no bit of the result.

use crate::chain::{Chain, Way};
use crate::samples::{batch, models};
use cairn_model::{Keep, Options, blocks};

#[test]
fn gradients_have_the_same_bits_whatever_is_kept() {
    for (name, config) in models() {
        let chain = Chain::<f32>::whole(&config, batch(config.vocab_size));
        for way in [Way::ALONE, Way::ranks(2, false), Way::ranks(2, true)] {
            let expected = chain.run(way);
            for keep in [Keep::Selected, Keep::Input] {
                assert_eq!(
                    chain.run(Way { keep, ..way }),
                    expected,
                    "{name}, {keep:?}, {way:?}"
                );
            }
            let forward = chain.run(Way {
                keep: Keep::Nothing,
                ..way
            });
            assert_eq!(forward.output, expected.output, "{name}");
        }
    }
}

#[test]
fn less_is_kept_in_order() {
    for (name, config) in models() {
        for sequence_parallel in [false, true] {
            let options = Options {
                sequence_parallel,
                ..Options::default()
            };
            for block in &blocks::<f32>(&config, &options)[1..] {
                let kept = [Keep::Everything, Keep::Selected, Keep::Input, Keep::Nothing]
                    .map(|keep| block.kept_elements(64, 2, keep));
                assert!(kept.is_sorted_by(|a, b| a >= b), "{name}: {kept:?}");
                assert!(
                    kept[0] > kept[2] && kept[2] > 0 && kept[3] == 0,
                    "{name}: {kept:?}"
                );
            }
        }
    }
}

#[test]
fn counts_of_parameters_are_those_of_the_blocks() {
    for (name, config) in models() {
        let blocks = blocks::<f32>(&config, &Options::default());
        let mut counted: usize = blocks.iter().map(|block| block.parameter_count()).sum();
        if config.tie_word_embeddings {
            counted -= blocks[0].parameter_count();
        }
        assert_eq!(config.parameter_count(), counted as u64, "{name}");
        assert!(blocks[1].forward_flops(10, 5) > 2.0 * 10.0 * 300.0);
    }
}
