//! Retention as a policy value, and the text that a rule is written as.

use super::facts::Facts;
use crate::Error;
use crate::clock::{age_text, parse_age};
use crate::lines::History;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// Which steps stay. A step stays if any rule says so; the newest good one, the one that its line began from and those with a tag always stay.
///
/// Newest is what was committed last, whatever its number: a run that goes back to step 20 and saves 25 has 25 as its newest step, though it has
/// a step 30. That one is *abandoned*: it did not lead to the newest step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keep {
    /// The newest this many, of those that led to the newest.
    pub last: usize,
    /// Every step that is a multiple of this.
    pub every: Option<u64>,
    /// The best by a metric that was saved with the steps, of those that led to the newest.
    pub best: Vec<Best>,
    /// Which of the abandoned steps stay, besides those that another rule keeps.
    pub abandoned: Abandoned,
    /// Those of a time before now.
    pub within: Vec<Within>,
    /// How long the files of a deleted step stay, for readers that have it open.
    pub grace: Duration,
    /// How much of the newest step is read and compared before anything is deleted: 0.0 for its structure alone, 1.0 for every byte.
    /// If it is damaged, it does not count, and the one before it is looked at.
    pub read_share: f64,
}

/// Which of the steps that a run abandoned when it went back stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Abandoned {
    /// The newest of each line that was abandoned.
    #[default]
    Newest,
    /// All of them.
    All,
    /// None.
    None,
}

/// The best few steps by a metric. Written `min:eval_loss:3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Best {
    /// The name of the metric.
    pub metric: String,
    /// Which values are good.
    pub goal: Goal,
    /// How many stay.
    pub count: usize,
}

/// Which values of a metric are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Small ones.
    Min,
    /// Large ones.
    Max,
}

/// The steps of a time before now: all of them (written `24h`), or the first in each stretch of it (`30d/1d`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Within {
    /// How far back.
    pub age: Duration,
    /// How long each stretch is, if one step of each is enough. Stretches are counted from 1970, so that days are days of UTC.
    pub one_each: Option<Duration>,
}

impl Keep {
    /// Why each step stays, by step. `steps` stand in the order in which they were committed; `now` is in seconds from 1970.
    pub(super) fn reasons(
        &self,
        steps: &[Facts],
        history: &History,
        now: u64,
    ) -> BTreeMap<u64, Vec<String>> {
        let mut kept: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut keep = |step: u64, reason: String| kept.entry(step).or_default().push(reason);
        let (current, abandoned): (Vec<&Facts>, Vec<&Facts>) = steps
            .iter()
            .partition(|facts| history.contains(facts.line, facts.step));
        for facts in current.iter().rev().take(self.last) {
            keep(facts.step, "last".into());
        }
        if let Some(every) = self.every.filter(|every| *every > 0) {
            let multiples = steps
                .iter()
                .filter(|facts| facts.step.is_multiple_of(every));
            multiples.for_each(|facts| keep(facts.step, format!("every {every}")));
        }
        for rule in &self.best {
            for step in rule.choose(&current) {
                keep(step, rule.reason());
            }
        }
        for (step, reason) in self.abandoned.choose(&abandoned) {
            keep(step, reason.into());
        }
        if let Some((line, step)) = history.forks().next()
            && current
                .iter()
                .any(|facts| (facts.line, facts.step) == (line, step))
        {
            keep(step, "the newest line began here".into());
        }
        for rule in &self.within {
            for step in rule.choose(steps, now) {
                keep(step, rule.reason());
            }
        }
        for facts in steps {
            let tags = facts.tags.iter();
            tags.for_each(|tag| keep(facts.step, format!("tag {tag}")));
        }
        if let Some(newest) = steps.last()
            && !kept.contains_key(&newest.step)
        {
            kept.insert(newest.step, vec!["newest good".into()]);
        }
        kept
    }
}

impl Abandoned {
    /// The abandoned steps it keeps, and why.
    fn choose(self, steps: &[&Facts]) -> Vec<(u64, &'static str)> {
        match self {
            Abandoned::None => Vec::new(),
            Abandoned::All => steps
                .iter()
                .map(|facts| (facts.step, "abandoned"))
                .collect(),
            Abandoned::Newest => {
                let newest: BTreeMap<u64, u64> =
                    steps.iter().map(|facts| (facts.line, facts.step)).collect();
                newest
                    .into_values()
                    .map(|step| (step, "newest of an abandoned line"))
                    .collect()
            }
        }
    }
}

impl Best {
    /// The best steps; of equal ones the newer. Steps without the metric, or with one that is no number, are never among them.
    fn choose(&self, steps: &[&Facts]) -> Vec<u64> {
        let known = steps.iter().filter_map(|facts| {
            let value = facts.metrics.get(&self.metric)?;
            Some((*value, facts.step))
        });
        let mut known: Vec<(f64, u64)> = known.filter(|(value, _)| value.is_finite()).collect();
        known.sort_by(|(a, step_a), (b, step_b)| {
            let order = match self.goal {
                Goal::Min => a.total_cmp(b),
                Goal::Max => b.total_cmp(a),
            };
            order.then(step_b.cmp(step_a))
        });
        let best = known.into_iter().take(self.count);
        best.map(|(_, step)| step).collect()
    }

    fn reason(&self) -> String {
        format!("best {} {}", self.goal.text(), self.metric)
    }
}

impl Within {
    /// The steps it keeps. One whose time cannot be read is kept, too.
    fn choose(&self, steps: &[Facts], now: u64) -> Vec<u64> {
        let oldest = now.saturating_sub(self.age.as_secs());
        let mut seen = BTreeSet::new();
        let kept = steps.iter().filter(|facts| {
            let Some(created) = facts.created else {
                return true;
            };
            let stretch = self.one_each.map(|each| created / each.as_secs().max(1));
            created >= oldest && stretch.is_none_or(|stretch| seen.insert(stretch))
        });
        kept.map(|facts| facts.step).collect()
    }

    fn reason(&self) -> String {
        let age = age_text(self.age);
        match self.one_each {
            None => format!("within {age}"),
            Some(each) => format!("one each {} within {age}", age_text(each)),
        }
    }
}

impl Goal {
    fn text(self) -> &'static str {
        match self {
            Goal::Min => "min",
            Goal::Max => "max",
        }
    }
}

impl Display for Best {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.goal.text(), self.metric, self.count)
    }
}

impl Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&age_text(self.age))?;
        match self.one_each {
            None => Ok(()),
            Some(each) => write!(f, "/{}", age_text(each)),
        }
    }
}

fn refused(text: &str, expected: &'static str) -> Error {
    Error::KeepRule {
        text: text.into(),
        expected,
    }
}

impl FromStr for Best {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = || {
            let (goal, rest) = text.split_once(':')?;
            let goal = match goal {
                "min" => Goal::Min,
                "max" => Goal::Max,
                _ => return None,
            };
            let (metric, count) = match rest.rsplit_once(':') {
                None => (rest, 1),
                Some((metric, count)) => (metric, count.parse().ok().filter(|count| *count > 0)?),
            };
            let metric = metric.to_string();
            (!metric.is_empty()).then_some(Self {
                metric,
                goal,
                count,
            })
        };
        parsed().ok_or_else(|| {
            refused(
                text,
                "`min:METRIC:COUNT` or `max:METRIC:COUNT`, such as `min:eval_loss:3`",
            )
        })
    }
}

impl FromStr for Within {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = || {
            let (age, each) = match text.split_once('/') {
                None => (text, None),
                Some((age, each)) => (age, Some(parse_age(each).ok()?)),
            };
            let age = parse_age(age).ok()?;
            let useful = each.is_none_or(|each| !each.is_zero() && each <= age);
            useful.then_some(Self {
                age,
                one_each: each,
            })
        };
        parsed().ok_or_else(|| {
            refused(
                text,
                "an age such as `24h`, or `30d/1d` for one step of each day in 30 days",
            )
        })
    }
}

impl FromStr for Abandoned {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "newest" => Ok(Self::Newest),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => Err(refused(text, "`newest`, `all` or `none`")),
        }
    }
}

impl From<Best> for String {
    fn from(rule: Best) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for Best {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Within> for String {
    fn from(rule: Within) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for Within {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests;
