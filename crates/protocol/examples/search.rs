//! Searches the model at a bound, as it is or with a mistake, and tells what it found.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use cairn_protocol::{Bound, Limits, Mistake, Report, Rules, check};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: search [--bound small|full] [--crashes N] [--passes N] [--prunings N] [--mistake NAME] [--states N] [--result FILE]
";

struct Arguments {
    bound: Bound,
    mistake: Option<Mistake>,
    limits: Limits,
    result: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = parse(&words) else {
        print!("{USAGE}");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let rules = arguments.mistake.map_or(Rules::PROVEN, Rules::with);
    println!("{:?}, mistake: {:?}", arguments.bound, arguments.mistake);
    let report = check(&rules, &arguments.bound, arguments.limits);
    tell(&report, begun.elapsed());
    if let Some(file) = &arguments.result {
        let text = json(&arguments, &report, begun.elapsed());
        #[expect(
            clippy::disallowed_methods,
            reason = "a result beside those of other runs"
        )]
        if let Err(error) = std::fs::write(file, text) {
            println!("cannot write {file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    match report.is_complete && report.counterexample.is_none() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn parse(words: &[String]) -> Option<Arguments> {
    let mut arguments = Arguments {
        bound: Bound::FULL,
        mistake: None,
        limits: Limits::default(),
        result: None,
    };
    let mut pairs = words.chunks_exact(2);
    for pair in &mut pairs {
        let value = &pair[1];
        let bound = &mut arguments.bound;
        match pair[0].as_str() {
            "--bound" if value == "small" => *bound = Bound::SMALL,
            "--bound" if value == "full" => *bound = Bound::FULL,
            "--crashes" => bound.crashes = value.parse().ok()?,
            "--passes" => bound.passes = value.parse().ok()?,
            "--prunings" => bound.prunings = value.parse().ok()?,
            "--tags" => bound.tags = value.parse().ok()?,
            "--uploads" => bound.uploads = value.parse().ok()?,
            "--states" => arguments.limits.states = value.parse().ok()?,
            "--result" => arguments.result = Some(value.clone()),
            "--mistake" => {
                let named = |mistake: &Mistake| format!("{mistake:?}") == *value;
                arguments.mistake = Some(Mistake::ALL.into_iter().find(named)?);
            }
            _ => return None,
        }
    }
    pairs.remainder().is_empty().then_some(arguments)
}

fn tell(report: &Report, elapsed: Duration) {
    println!(
        "{} states, {} moves, {} deep, in {:.0} s",
        report.states,
        report.moves,
        report.depth,
        elapsed.as_secs_f64()
    );
    match &report.counterexample {
        Some(found) => {
            println!("broken: {:?}", found.broken);
            found.story.iter().for_each(|line| println!("  {line}"));
        }
        None if report.is_complete => println!("every promise is kept in all of them"),
        None => println!("no promise is broken in those; there are more"),
    }
}

fn json(arguments: &Arguments, report: &Report, elapsed: Duration) -> String {
    let bound = arguments.bound;
    let broken = report.counterexample.as_ref();
    format!(
        "{{\n  \"bound\": {{\"writers\": 2, \"prunings\": {}, \"passes\": {}, \"replacements\": {}, \"uploads\": {}, \"tags\": {}, \"crashes\": {}}},\n  \"mistake\": \"{:?}\",\n  \"states\": {},\n  \"moves\": {},\n  \"depth\": {},\n  \"complete\": {},\n  \"broken\": \"{:?}\",\n  \"seconds\": {:.0}\n}}\n",
        bound.prunings,
        bound.passes,
        u8::from(bound.replaces),
        u8::from(bound.uploads),
        u8::from(bound.tags),
        bound.crashes,
        arguments.mistake,
        report.states,
        report.moves,
        report.depth,
        report.is_complete,
        broken.map(|found| found.broken),
        elapsed.as_secs_f64()
    )
}
