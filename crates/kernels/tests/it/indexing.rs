//! Rows by index and by mask, and their gradients.

use crate::support::{check_gradients, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::gemm::Write;
use cairn_kernels::indexing::{
    gather, index_put, index_put_backward, masked_fill, scatter_add, select, select_backward,
};

#[test]
fn the_gradient_of_gather_is_a_scatter() {
    let pool = Pool::new(2);
    let indices = [4, 0, 4, 2];
    let (source, slope) = (random(1, 5 * 3), random(2, 4 * 3));
    let mut gradient = vec![0.0; source.len()];
    scatter_add(&pool, 3, &indices, &slope, &mut gradient);
    check_gradients([&source], [&gradient], |[source]| {
        let mut y = vec![0.0; slope.len()];
        gather(&pool, 3, source, &indices, &mut y);
        inner(&slope, &y)
    });
}

#[test]
fn the_gradient_of_putting_is_right_for_places_put_to_twice() {
    let pool = Pool::new(2);
    let indices = [4, 0, 4, 2];
    let (target, values, slope) = (random(1, 5 * 3), random(2, 4 * 3), random(3, 5 * 3));
    for write in [Write::Replace, Write::Add] {
        let mut gradient = slope.clone();
        let mut of_values = vec![0.0; values.len()];
        index_put_backward(&pool, 3, &indices, write, &mut gradient, &mut of_values);
        check_gradients(
            [&target, &values],
            [&gradient, &of_values],
            |[target, values]| {
                let mut y = target.to_vec();
                index_put(&pool, 3, &indices, values, write, &mut y);
                inner(&slope, &y)
            },
        );
    }
}

#[test]
fn the_last_value_put_to_a_place_stays() {
    let mut target = [0.0_f32; 3];
    let values = [1.0, 2.0, 3.0];
    index_put(
        &Pool::new(3),
        1,
        &[1, 1, 0],
        &values,
        Write::Replace,
        &mut target,
    );
    assert_eq!(target, [3.0, 2.0, 0.0]);
}

#[test]
fn gradients_of_masks_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    let mask = [true, false, false, true];
    let (x, slope) = (random(1, 4), random(2, 4));
    let mut gradient = slope.clone();
    masked_fill(&pool, &mask, 0.0, &mut gradient);
    check_gradients([&x], [&gradient], |[x]| {
        let mut y = x.to_vec();
        masked_fill(&pool, &mask, 7.0, &mut y);
        inner(&slope, &y)
    });
    let (x, slope) = (random(3, 4 * 2), random(4, 2 * 2));
    let mut gradient = vec![f64::NAN; x.len()];
    select_backward(&pool, 2, &mask, &slope, &mut gradient);
    check_gradients([&x], [&gradient], |[x]| {
        inner(&slope, &select(&pool, 2, &mask, x))
    });
}

#[test]
fn nothing_selected_is_nothing() {
    let pool = Pool::new(1);
    assert!(select(&pool, 2, &[false; 3], &[1.0_f32; 6]).is_empty());
    assert!(select::<f32>(&pool, 0, &[true; 3], &[]).is_empty());
    gather::<f32>(&pool, 3, &[], &[], &mut []);
    scatter_add::<f32>(&pool, 0, &[0], &[], &mut []);
}

#[test]
#[should_panic(expected = "an index is beyond the target")]
fn an_index_beyond_the_target_is_refused() {
    index_put(
        &Pool::new(2),
        1,
        &[3],
        &[1.0],
        Write::Add,
        &mut [0.0_f32; 3],
    );
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let indices: Vec<usize> = (0..9000).map(|index| index * index % 4000).collect();
    let values = random::<f32>(1, 9000 * 8);
    same_on_all_threads(|pool| {
        let [mut sums, mut last] = [vec![0.5; 4000 * 8], vec![0.5; 4000 * 8]];
        scatter_add(pool, 8, &indices, &values, &mut sums);
        index_put(pool, 8, &indices, &values, Write::Replace, &mut last);
        let mut gathered = vec![0.0; values.len()];
        gather(pool, 8, &sums, &indices, &mut gathered);
        vec![sums, last, gathered]
    });
}
