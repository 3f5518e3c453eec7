import { acts } from "tidelog/acts.js";
import { diagram } from "tidelog/diagram.js";
import { head } from "tidelog/head.js";
import { keys } from "tidelog/keys.js";
import { lesson } from "tidelog/lesson.js";
import { open } from "tidelog/source.js";
import { stage } from "tidelog/stage.js";
import { fail, listen, touch } from "tidelog/state.js";
import { story } from "tidelog/story.js";
import { time } from "tidelog/time.js";
import { verdict } from "tidelog/verdict.js";

// Each view with the parts of the state that it shows.
const VIEWS = [
  [head, ["hello"]],
  [time, ["hello", "time", "events", "picture"]],
  [verdict, ["hello", "picture", "time", "bands", "error"]],
  [lesson, ["hello", "lesson"]],
  [stage, ["hello", "picture", "time", "selected", "events", "lesson"]],
  [acts, ["hello", "picture", "time", "acts"]],
  [story, ["hello", "events", "time", "selected", "filter"]],
  [diagram, ["hello", "events", "time", "selected"]],
];

listen((changed) => {
  for (const [view, parts] of VIEWS) if (parts.some((part) => changed.has(part))) view(changed);
});
keys();
try {
  open();
} catch (error) {
  fail(`The messages of this page cannot be read: ${error.message}`);
}
touch("hello", "bands", "error", "time");
