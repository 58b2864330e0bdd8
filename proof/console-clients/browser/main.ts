/** Runs one scenario: `main.ts SCENARIO`, with the fixture in the environment. */
import type { Fixture } from './console.ts';
import { activity } from './scenarios/activity.ts';
import { administration } from './scenarios/administration.ts';
import { commands } from './scenarios/commands.ts';
import { axe, keyboard, weight } from './scenarios/everybody.ts';
import { firstRun } from './scenarios/first_run.ts';
import { firstStart } from './scenarios/first_start.ts';
import { groups } from './scenarios/groups.ts';
import { hostVolumes } from './scenarios/host_volumes.ts';
import { images } from './scenarios/images.ts';
import { log } from './scenarios/log.ts';
import { machines } from './scenarios/machines.ts';
import { many } from './scenarios/many.ts';
import { overview } from './scenarios/overview.ts';
import { pictures } from './scenarios/pictures.ts';
import { policy } from './scenarios/policy.ts';
import { projects } from './scenarios/projects.ts';
import { recovery } from './scenarios/recovery.ts';
import { results } from './scenarios/results.ts';
import { required, secondFactor } from './scenarios/second_factor.ts';
import { sessions } from './scenarios/sessions.ts';
import { several } from './scenarios/several.ts';
import { topics } from './scenarios/topics.ts';
import { volumes } from './scenarios/volumes.ts';
import { watching } from './scenarios/watching.ts';

const SCENARIOS: Record<string, (fixture: Fixture) => Promise<void>> = {
  activity,
  administration,
  axe,
  commands,
  first_run: firstRun,
  first_start: firstStart,
  groups,
  host_volumes: hostVolumes,
  images,
  keyboard,
  log,
  machines,
  many,
  overview,
  pictures,
  policy,
  projects,
  recovery,
  required,
  results,
  second_factor: secondFactor,
  sessions,
  several,
  topics,
  volumes,
  watching,
  weight,
};

function needed(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const name = process.argv[2] ?? '';
const scenario = SCENARIOS[name];
if (scenario === undefined) throw new Error(`no scenario is named ${name}`);
await scenario({
  origin: needed('MEMLANE_CONSOLE'),
  code: needed('MEMLANE_CONSOLE_CODE'),
  administrator: needed('MEMLANE_CONSOLE_USER'),
  password: needed('MEMLANE_CONSOLE_PASSWORD'),
  kernelArgs: needed('MEMLANE_GUEST_KERNEL_ARGS'),
});
process.exit(0);
