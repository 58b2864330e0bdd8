/** Every English text, a file for each part. A translation is another folder like `texts`. */
import { general, daemon, login, dialog } from './texts/general';
import { overview, warnings, charts } from './texts/overview';
import { volumes } from './texts/volumes';
import { snapshots } from './texts/snapshots';
import { machines, consoles } from './texts/machines';
import { images, tasks, pool } from './texts/images';
import { access } from './texts/access';
import { secondFactor } from './texts/second_factor';
import { log } from './texts/log';
import { groups } from './texts/groups';
import { firstRun } from './texts/first_run';

export const texts = {
  general,
  daemon,
  login,
  dialog,
  overview,
  warnings,
  charts,
  volumes,
  snapshots,
  machines,
  consoles,
  images,
  tasks,
  log,
  groups,
  firstRun,
  pool,
  access,
  secondFactor,
} as const;
