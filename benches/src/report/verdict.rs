//! How windlass stands in a row, and how figures are written.

use crate::results::{Row, Summary};

/// Which figures are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates.
    Higher,
}

impl Better {
    /// Of a figure, by its key.
    pub fn of(key: &str) -> Better {
        if key == "per_second" {
            Better::Higher
        } else {
            Better::Lower
        }
    }

    /// For a reader.
    pub fn words(self) -> &'static str {
        match self {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        }
    }

    fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Better::Lower => a < b,
            Better::Higher => a > b,
        }
    }
}

/// windlass beside its best peer. The ratio is that of the greater median to the smaller one.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// windlass' whole range is better than that of each peer.
    First {
        /// The best of the peers.
        peer: String,
        /// How far it is behind.
        ratio: f64,
    },
    /// The ranges overlap.
    Level {
        /// The best of those whose range overlaps.
        peer: String,
    },
    /// The best peer's whole range is better.
    Loses {
        /// The best of the peers.
        peer: String,
        /// How far windlass is behind.
        ratio: f64,
    },
    /// No peer has this figure, or windlass has it not.
    Alone,
}

/// The name of windlass among the contenders.
pub const WINDLASS: &str = "windlass";

/// Whether a contender is another form of windlass, so not one to be compared with.
pub fn is_ours(contender: &str) -> bool {
    contender.starts_with(WINDLASS)
}

impl Verdict {
    /// Of a row.
    pub fn of(row: &Row) -> Verdict {
        let better = Better::of(&row.key);
        let ours = row.cells.iter().find(|(name, _)| name == WINDLASS);
        let mut peers: Vec<_> = row
            .cells
            .iter()
            .filter(|(name, _)| !is_ours(name))
            .collect();
        peers.sort_by(|(_, a), (_, b)| match better {
            Better::Lower => a.median.total_cmp(&b.median),
            Better::Higher => b.median.total_cmp(&a.median),
        });
        let (Some((_, ours)), Some((best, figure))) = (ours, peers.first()) else {
            return Verdict::Alone;
        };
        let ratio = ours.median.max(figure.median) / ours.median.min(figure.median);
        let overlap = peers.iter().find(|(_, peer)| overlap(ours, peer));
        match overlap {
            _ if better.is_better(figure.median, ours.median) && !self::overlap(ours, figure) => {
                Verdict::Loses {
                    peer: best.clone(),
                    ratio,
                }
            }
            Some((peer, _)) => Verdict::Level { peer: peer.clone() },
            None => Verdict::First {
                peer: best.clone(),
                ratio,
            },
        }
    }

    /// For a cell of a table or the corner of a chart.
    pub fn words(&self) -> String {
        match self {
            Verdict::First { peer, ratio } if ratio.is_finite() => {
                format!("ahead of {} by {}", display(peer), by(*ratio))
            }
            Verdict::First { .. } => "ahead of all".to_owned(),
            Verdict::Level { peer } => format!("level with {}", display(peer)),
            Verdict::Loses { peer, ratio } if ratio.is_finite() => {
                format!("loses to {} by {}", display(peer), by(*ratio))
            }
            Verdict::Loses { peer, .. } => format!("loses to {}", display(peer)),
            Verdict::Alone => "–".to_owned(),
        }
    }
}

fn overlap(a: &Summary, b: &Summary) -> bool {
    a.min <= b.max && b.min <= a.max
}

/// How a contender is called on the page.
pub fn display(contender: &str) -> &str {
    match contender {
        "go" => "Go",
        "windlass-epoll" => "windlass over epoll",
        other => other,
    }
}

/// `34 %`, or from twice on `a factor of 2.3`.
fn by(ratio: f64) -> String {
    if ratio < 2.0 {
        format!("{:.0} %", (ratio - 1.0) * 100.0)
    } else if ratio < 10.0 {
        format!("a factor of {ratio:.1}")
    } else {
        format!("a factor of {}", figure(ratio.round()))
    }
}

/// Three digits, and commas between thousands.
pub fn figure(value: f64) -> String {
    match value {
        v if v.is_infinite() => "never".to_owned(),
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => {
            let unit = if v >= 1e5 { 1e3 } else { 1e2 };
            with_commas((v / unit).round() * unit)
        }
        v if v >= 100.0 => with_commas(v.round()),
        v if v >= 10.0 && v.fract() == 0.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn with_commas(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The median, and the range where there is one.
pub fn cell(summary: &Summary) -> String {
    let median = figure(summary.median);
    if summary.rounds < 2 {
        return median;
    }
    format!("{median} ({}–{})", figure(summary.min), figure(summary.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(key: &str, cells: &[(&str, &[f64])]) -> String {
        Verdict::of(&Row::of("an experiment", key, cells)).words()
    }

    #[test]
    fn verdicts_follow_the_medians() {
        let ns = |w: &[f64], t: &[f64]| words("ns", &[("windlass", w), ("tokio", t)]);
        assert_eq!(ns(&[10.0], &[13.4]), "ahead of tokio by 34 %");
        assert_eq!(ns(&[112.0], &[100.0]), "loses to tokio by 12 %");
        assert_eq!(ns(&[10.0], &[25.0]), "ahead of tokio by a factor of 2.5");
        assert_eq!(
            ns(&[13.0], &[108_342.0]),
            "ahead of tokio by a factor of 8,334"
        );
        assert_eq!(ns(&[10.0], &[f64::INFINITY]), "ahead of all");
        assert_eq!(ns(&[f64::INFINITY], &[1.0]), "loses to tokio");
    }

    #[test]
    fn more_is_better_for_rates() {
        let rates: &[(&str, &[f64])] = &[("windlass", &[200.0]), ("go", &[250.0])];
        assert_eq!(words("per_second", rates), "loses to Go by 25 %");
        assert_eq!(words("ns", rates), "ahead of Go by 25 %");
    }

    #[test]
    fn ranges_that_overlap_are_level() {
        let w: &[f64] = &[9.0, 10.0, 12.0];
        let close = words("ns", &[("windlass", w), ("may", &[11.0, 13.0, 14.0])]);
        assert_eq!(close, "level with may");
        let behind = words("ns", &[("windlass", w), ("may", &[8.0, 8.5, 9.0])]);
        assert_eq!(behind, "level with may");
        let one_wide = [
            ("windlass", w),
            ("may", &[20.0]),
            ("go", &[11.0, 30.0, 31.0]),
        ];
        assert_eq!(words("ns", &one_wide), "level with Go");
    }

    #[test]
    fn a_loss_to_one_is_a_loss_though_another_is_level() {
        let cells: &[(&str, &[f64])] = &[
            ("windlass", &[9.0, 10.0, 12.0]),
            ("tokio", &[5.0]),
            ("may", &[10.0, 11.0, 12.0]),
        ];
        assert_eq!(words("ns", cells), "loses to tokio by a factor of 2.0");
    }

    #[test]
    fn windlass_over_epoll_is_no_peer() {
        let cells: &[(&str, &[f64])] = &[("windlass", &[2.0]), ("windlass-epoll", &[1.0])];
        assert_eq!(words("ns", cells), "–");
    }

    #[test]
    fn figures_have_three_digits() {
        let figures = [
            0.123, 5.0, 12.34, 64.0, 567.8, 6_765.4, 33_049.0, 108_342.0, 1.283e6,
        ];
        let texts = figures.map(figure);
        assert_eq!(
            texts,
            [
                "0.12", "5.00", "12.3", "64", "568", "6,765", "33,000", "108,000", "1.28 M"
            ]
        );
        assert_eq!(cell(&Summary::of(&[3.0]).unwrap()), "3.00");
        assert_eq!(
            cell(&Summary::of(&[1.0, 2.0, 4.0]).unwrap()),
            "2.00 (1.00–4.00)"
        );
    }
}
