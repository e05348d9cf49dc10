//! Models that cannot be merged: all reasons at once.

use crate::fixture::{Place, tensors};
use cairn_merge::Error;

fn problems(place: &Place, text: &str) -> Vec<String> {
    let folder = place.path().to_str().unwrap().to_string();
    match place.merge(text) {
        Err(Error::Models { problems }) => problems
            .into_iter()
            .map(|problem| problem.replace(&folder, "$"))
            .collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a merge"),
    }
}

#[test]
fn all_missing_models_are_named() {
    let place = Place::with_models(1);
    let text = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: $/x}, {model: $/a}, {model: $/y}]";
    let found = problems(&place, text);
    assert_eq!(found, ["`$/x` does not exist", "`$/y` does not exist"]);
}

#[test]
fn other_names_and_shapes_are_told_together() {
    let place = Place::with_models(1);
    let mut strange = tensors(4, 1);
    strange.remove("model.norm.weight");
    strange.insert(
        "model.layers.0.input_layernorm.weight".into(),
        (vec![2, 2], vec![0.0; 4]),
    );
    place.model("strange", &strange);
    let text =
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: $/a}, {model: $/strange}]";
    let expected = [
        "`model.layers.0.input_layernorm.weight` is [4] in `$/a` and [2, 2] in `$/strange`",
        "`model.norm.weight` is not in $/strange",
    ];
    assert_eq!(problems(&place, text), expected);
}

#[test]
fn other_vocabularies_have_a_hint() {
    let place = Place::with_models(1);
    let mut longer = tensors(4, 1);
    longer.insert("lm_head.weight".into(), (vec![6, 4], vec![0.0; 24]));
    place.model("longer", &longer);
    let text =
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: $/a}, {model: $/longer}]";
    let error = place.merge(text).err().unwrap();
    assert!(error.to_string().contains("different tokens"), "{error}");
    assert!(error.hint().unwrap().contains("tokenizer_source"));
}

#[test]
fn a_method_says_how_many_models_and_which_parameters_it_needs() {
    let place = Place::with_models(1);
    let slerp = "merge_method: slerp\nbase_model: $/base\nmodels: [{model: $/a}, {model: $/b}]";
    let found = problems(&place, slerp);
    assert_eq!(
        found,
        ["`slerp` takes 1 models beside the base model, and this merge has 2"]
    );
    let found = problems(&place, "merge_method: ties\nmodels: [{model: $/a}]");
    assert_eq!(found, ["this merge needs a `base_model` for `ties`"]);
    let found = problems(
        &place,
        "merge_method: linear\nmodels: [{model: $/a}, {model: $/b, parameters: {weight: 1}}]",
    );
    assert_eq!(found, ["`linear` needs a `weight` for `$/a`"]);
    let twice =
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: $/a}, {model: $/a}]";
    assert_eq!(problems(&place, twice), ["this merge has `$/a` twice"]);
    let della = "merge_method: della\nbase_model: $/base\nmodels: [{model: $/a, parameters: {weight: 1, density: 0.9}}]";
    let found = problems(&place, della);
    assert_eq!(
        found,
        ["`density` 0.9 ± `epsilon` 0.15 does not lie between 0 and 1"]
    );
}

#[test]
fn layers_that_are_not_there_are_told() {
    let place = Place::with_models(2);
    let text =
        "merge_method: passthrough\nslices: [{sources: [{model: $/a, layer_range: [1, 5]}]}]";
    let found = problems(&place, text);
    assert_eq!(found[0], "`$/a` has 2 layers, not the layers 1 to 4");
}

#[test]
fn a_model_with_two_stacks_says_which_one_is_sliced() {
    let place = Place::with_models(2);
    let mut seeing = tensors(4, 2);
    for layer in 0..3 {
        let name = format!("vision.blocks.{layer}.mlp.weight");
        seeing.insert(name, (vec![1], vec![0.5]));
    }
    place.model("seeing", &seeing);
    let text =
        "merge_method: passthrough\nslices: [{sources: [{model: $/seeing, layer_range: [0, 2]}]}]";
    let found = problems(&place, text);
    let expected = "slices of which layers? There are `model.layers.`, `vision.blocks.`: say it with `modules`";
    assert_eq!(found, [expected]);
}
