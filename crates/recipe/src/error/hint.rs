//! What the writer of a program can do about a problem.

use super::Problem;

impl Problem {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        let did_you_mean =
            |near: &Option<String>| near.as_ref().map(|near| format!("did you mean `{near}`?"));
        Some(match self {
            Problem::Unexpected { .. } => {
                "a statement is `a, b -> c, axis=0`; names with other characters than letters, digits, `.` and `_` are quoted".into()
            }
            Problem::TransposedTarget => "assign first and transpose then: `a -> b`, `b^T -> b`".into(),
            Problem::UnknownAttribute { near, .. } => did_you_mean(near)
                .unwrap_or_else(|| "`docs/guide/recipes.md` lists the attributes".into()),
            Problem::StrayAttribute { attribute } => match attribute.as_str() {
                "sizes" => "`sizes` goes with `axis`: `a -> b, c, axis=0, sizes=[3, 5]`".into(),
                _ => "write it after the operation it is about".into(),
            },
            Problem::Uneven { .. } => {
                "choose a number of shards that divides them, or `fused_qkv`, which does not depend on shards".into()
            }
            Problem::NoSuchName { near, .. } => did_you_mean(near)
                .unwrap_or_else(|| "names are those of the sources and of what statements before made".into()),
            Problem::NoSource { target, near } => {
                let near = did_you_mean(near).map(|near| near + " Or ").unwrap_or_default();
                format!("{near}`_ -> {target}` keeps the model's own value")
            }
            Problem::NamesState { parameter, .. } => format!("write statements about `{parameter}`"),
            Problem::NoMatch { among: "targets", .. } => "give the targets, or check the name".into(),
            Problem::NoMatch { .. } => "check the name, or add `optional=true` if there may be none".into(),
            Problem::NoPlaceholder { .. } => "every name of a statement has the same placeholders; `*` stands for all ids in one".into(),
            Problem::NoIdBefore { .. } => "`$LAYER_ID_OFFSET` is n on the left and n - 1 on the right".into(),
            Problem::Indivisible { .. } => "uneven parts are written `sizes=[3, 5]`".into(),
            Problem::JoinedDTypes { .. } => "cast one of them first: `a -> a, dtype=\"bfloat16\"`".into(),
            Problem::TargetDType { declared, .. } => {
                format!("cast with `dtype=\"{}\"`", crate::dtype::name(*declared))
            }
            Problem::TargetShape { derived, declared, .. } if transposed(derived, declared) => {
                "transpose with `^T`: `a^T -> b`".into()
            }
            Problem::Dropped { name, .. } => format!("remove `{name} -> _`, or make the target of something else"),
            Problem::Irreversible { operation: "dtype", .. } => {
                "write `src_dtype=\"float32\", dst_dtype=\"bfloat16\"` instead".into()
            }
            Problem::Irreversible { .. } => "give the targets, whose shapes tell what is to come out".into(),
            Problem::CutBlocks { .. } => "quantise before joining, or join at whole blocks".into(),
            Problem::Json { .. } => "a program is `{\"statements\": […], \"sources\": {…}}`".into(),
            _ => return None,
        })
    }
}

fn transposed(a: &[usize], b: &[usize]) -> bool {
    a.len() > 1 && a.iter().eq(b.iter().rev())
}
