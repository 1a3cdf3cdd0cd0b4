"""The list of pitfall rules, in the order in which a report prints them."""

from __future__ import annotations

from harness_heads.protocol import pitfalls as p
from harness_heads.protocol import pitfalls_data as d
from harness_heads.protocol import pitfalls_plan as f
from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.findings import Finding, Rule

RULES: tuple[Rule, ...] = (
    Rule("no-controls", "a score without control sets", p.no_controls),
    Rule("one-control-draw", "one random set taken for the null", p.one_control_draw),
    Rule(
        "mean-interval-as-spread",
        "the interval of the controls' mean taken for their spread",
        p.mean_interval_as_spread,
    ),
    Rule("test-against-zero", "zero taken for the null", p.test_against_zero),
    Rule("floor-above-alpha", "so few controls that no p can pass", p.floor_above_alpha),
    Rule("r-after-looking", "more controls for winners without a rule", p.controls_chosen_after_looking),
    Rule("fewer-items", "fewer items than the plan fixes", f.fewer_items),
    Rule("other-settings", "settings that are not the plan's", f.other_settings),
    Rule("other-k", "sets of another size than the plan's", f.other_k),
    Rule("unplanned", "sets and tasks that the plan does not name", f.unplanned),
    Rule("left-out", "planned sets and tasks that are not reported", f.left_out),
    Rule("tuned-on-evaluation", "k, beta or rows chosen on the evaluation items", p.unplanned_scan),
    Rule("fewer-control-heads", "control sets smaller than the set", p.fewer_control_heads),
    Rule("profile-mismatch", "layer-matched controls that are not", p.controls_of_other_layers),
    Rule("weak-controls", "controls picked for being weak", p.chosen_weak_controls),
    Rule("repeated-controls", "a null of few different sets", p.repeated_controls),
    Rule("set-left-out", "controls that exclude the set's heads", p.controls_leave_the_set_out),
    Rule("control-mass-far", "controls far from the set in attention mass", p.control_mass_far),
    Rule("low-power-as-absence", "silence read as absence", p.low_power_as_absence),
    Rule("shared-images", "discovery and evaluation share images", d.shared_images),
    Rule("nested-items", "items of one image treated as independent", d.nested_items),
    Rule("large-k", "sets that cover much of the model", d.large_k),
    Rule("floor-bound-arm", "flattening counted as necessity", d.floor_bound_arm),
    Rule("audit-out-of-range", "arms that leak or fail", d.audit_out_of_range),
    Rule("steering-without-dose", "steering whose effect on attention is unknown", d.steering_without_dose),
    Rule("unmatched-dose", "set and controls steered to different mass", d.unmatched_dose),
    Rule("could-not-act", "an intervention that moved nothing", d.could_not_act),
    Rule("mass-explains-score", "a score that follows attention mass", d.mass_explains_score),
)


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """Everything that the rules find, in the rules' order."""
    return tuple(finding for rule in RULES for finding in rule.check(analysis))
