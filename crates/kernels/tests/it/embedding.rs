//! Tables of rows by token.

use crate::support::{check_gradients, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::embedding::Embedding;

#[test]
fn gradients_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    let tokens = [3, 0, 9, 3, 4, u32::MAX];
    for first in [0, 3] {
        let embedding = Embedding { first, width: 3 };
        let table = random(1, 5 * 3);
        let slope = random(2, tokens.len() * 3);
        let mut gradient = vec![0.0; table.len()];
        embedding.backward(&pool, &tokens, &slope, &mut gradient);
        check_gradients([&table], [&gradient], |[table]| {
            let mut y = vec![f64::NAN; slope.len()];
            embedding.forward(&pool, table, &tokens, &mut y);
            inner(&slope, &y)
        });
    }
}

#[test]
fn parts_of_a_table_add_up_to_the_whole() {
    let pool = Pool::new(1);
    let table = random::<f32>(1, 10 * 4);
    let tokens = [7, 2, 2, 9];
    let rows = |first: usize, table: &[f32]| {
        let mut y = vec![0.0; 16];
        Embedding { first, width: 4 }.forward(&pool, table, &tokens, &mut y);
        y
    };
    let parts = [
        rows(0, &table[..16]),
        rows(4, &table[16..28]),
        rows(7, &table[28..]),
    ];
    let sum: Vec<f32> = (0..16)
        .map(|place| parts.iter().map(|part| part[place]).sum())
        .collect();
    assert_eq!(sum, rows(0, &table));
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let tokens: Vec<u32> = (0..5000_u32)
        .map(|token| token.wrapping_mul(2_654_435_761) % 3001)
        .collect();
    let embedding = Embedding {
        first: 0,
        width: 24,
    };
    let table = random::<f32>(1, 3000 * 24);
    let slope = random::<f32>(2, 5000 * 24);
    same_on_all_threads(|pool| {
        let mut y = vec![0.0; slope.len()];
        embedding.forward(pool, &table, &tokens, &mut y);
        let mut gradient = table.clone();
        embedding.backward(pool, &tokens, &slope, &mut gradient);
        vec![y, gradient]
    });
}
