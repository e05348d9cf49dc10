//! What the writer of a program can do about a problem.

use super::Problem;

impl Problem {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Problem::UnknownAttribute { near, .. } => did_you_mean(near)
                .unwrap_or_else(|| "`docs/guide/recipes.md` lists the attributes".into()),
            Problem::NoSuchName { near, .. } => did_you_mean(near).unwrap_or_else(|| {
                "names are those of the sources and of what statements before made".into()
            }),
            Problem::NoSource { target, near } => {
                let near = did_you_mean(near).map(|near| near + " Or ");
                let near = near.unwrap_or_default();
                format!("{near}`_ -> {target}` keeps the model's own value")
            }
            Problem::NamesState { parameter, .. } => {
                format!("write statements about `{parameter}`")
            }
            Problem::TargetDType { declared, .. } => {
                format!("cast with `dtype=\"{}\"`", crate::dtype::name(*declared))
            }
            Problem::Dropped { name, .. } => {
                format!("remove `{name} -> _`, or make the target of something else")
            }
            other => return other.plain_hint().map(str::to_owned),
        };
        Some(text)
    }

    /// A hint that is the same whatever the values are.
    fn plain_hint(&self) -> Option<&'static str> {
        Some(match self {
            Problem::Unexpected { .. } => {
                "a statement is `a, b -> c, axis=0`; \
                 names with other characters than letters, digits, `.` and `_` are quoted"
            }
            Problem::TransposedTarget => "assign first and transpose then: `a -> b`, `b^T -> b`",
            Problem::StrayAttribute { attribute } if attribute == "sizes" => {
                "`sizes` goes with `axis`: `a -> b, c, axis=0, sizes=[3, 5]`"
            }
            Problem::StrayAttribute { .. } => "write it with the operation it is about",
            Problem::Uneven { .. } => {
                "choose a number of shards that divides them, \
                 or `fused_qkv`, which does not depend on shards"
            }
            Problem::NoMatch {
                among: "targets", ..
            } => "give the targets, or check the name",
            Problem::NoMatch { .. } => {
                "check the name, or add `optional=true` if there may be none"
            }
            Problem::NoPlaceholder { .. } => {
                "every name of a statement has the same placeholders; `*` stands for all ids in one"
            }
            Problem::NoIdBefore { .. } => {
                "`$LAYER_ID_OFFSET` is n on the left and n - 1 on the right"
            }
            Problem::Indivisible { .. } => "uneven parts are written `sizes=[3, 5]`",
            Problem::JoinedDTypes { .. } => "cast one of them first: `a -> a, dtype=\"bfloat16\"`",
            Problem::TargetShape {
                derived, declared, ..
            } if transposed(derived, declared) => "transpose with `^T`: `a^T -> b`",
            Problem::Irreversible {
                operation: "dtype", ..
            } => "write `src_dtype=\"float32\", dst_dtype=\"bfloat16\"` instead",
            Problem::Irreversible { .. } => {
                "give the targets, whose shapes tell what is to come out"
            }
            Problem::CutBlocks { .. } => "quantise before joining, or join at whole blocks",
            Problem::Json { .. } => "a program is `{\"statements\": […], \"sources\": {…}}`",
            _ => return None,
        })
    }
}

fn did_you_mean(near: &Option<String>) -> Option<String> {
    near.as_ref().map(|near| format!("did you mean `{near}`?"))
}

fn transposed(a: &[usize], b: &[usize]) -> bool {
    a.len() > 1 && a.iter().eq(b.iter().rev())
}
