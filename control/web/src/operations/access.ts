/** What can be done to users, projects, tokens, sessions and passwords: the console's own. */
import { path } from '../api/calls';
import {
  ROLES,
  type ListedSession,
  type PasswordChanged,
  type Project,
  type Role,
  type Rules,
  type SecondFactorSecret,
  type Token,
  type User,
} from '../api/model';
import { exactBytes } from '../format';
import { texts } from '../texts';
import type { Field, Operation } from './operation';

const words = texts.access;
const factorWords = texts.secondFactor;
const DAY_SECONDS = 86_400;
const GIB = 2 ** 30;
const QUOTA_VOLUMES = '100';

function roleField(value: Role, highest: Role = 'administrator'): Field {
  const roles = ROLES.slice(0, ROLES.indexOf(highest) + 1);
  return {
    kind: 'select',
    name: 'role',
    label: words.role,
    hint: words.roleHint,
    value,
    choices: roles.map((role) => ({ value: role, label: words.roles[role] })),
  };
}

function projectsField(value: string[], projects: Project[]): Field {
  const choices = projects.map((project) => ({ value: project.name, label: project.name }));
  return {
    kind: 'many',
    name: 'projects',
    label: words.projects,
    hint: words.projectsHint,
    value,
    choices,
  };
}

function passwordField(hint: string, required: boolean): Field {
  return {
    kind: 'password',
    name: 'password',
    label: words.password,
    hint,
    required,
    autocomplete: 'new-password',
  };
}

export function createUser(projects: Project[]): Operation {
  return {
    title: words.createUser,
    button: words.createUser,
    fields: [
      { kind: 'text', name: 'name', label: words.userName, required: true, autocomplete: 'off' },
      passwordField(words.passwordHint, true),
      roleField('viewer'),
      projectsField([], projects),
    ],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/users',
      body: {
        name: values.text('name'),
        password: values.exactly('password'),
        role: values.text('role'),
        projects: values.many('projects'),
      },
    }),
    command: () => null,
    done: (values) => words.userCreated(values.text('name')),
  };
}

function isSame(some: string[], others: string[]): boolean {
  return some.length === others.length && some.every((it) => others.includes(it));
}

/** Sends what differs alone, and only to the user that was looked at. */
export function changeUser(user: User, projects: Project[]): Operation {
  return {
    title: words.changeUserTitle(user.name),
    button: words.change,
    explanation: words.changeUserExplanation,
    fields: [
      roleField(user.role),
      projectsField(user.projects, projects),
      passwordField(words.newPasswordHint, false),
      {
        kind: 'check',
        name: 'disabled',
        label: words.disabled,
        hint: words.disabledHint,
        value: user.disabled,
      },
    ],
    request: (values) => ({
      method: 'PATCH',
      path: path`/console/v1/users/${user.name}`,
      ifMatch: user.etag,
      body: {
        ...(values.text('role') === user.role ? {} : { role: values.text('role') }),
        ...(isSame(values.many('projects'), user.projects)
          ? {}
          : { projects: values.many('projects') }),
        ...(values.check('disabled') === user.disabled
          ? {}
          : { disabled: values.check('disabled') }),
        ...(values.exactly('password') === '' ? {} : { password: values.exactly('password') }),
      },
    }),
    command: () => null,
    done: () => words.userChanged(user.name),
  };
}

export function deleteUser(user: User): Operation {
  return {
    title: words.deleteUserTitle(user.name),
    button: words.delete,
    fields: [],
    losses: [words.deleteUserLoses(user.name)],
    nameToType: user.name,
    request: () => ({ method: 'DELETE', path: path`/console/v1/users/${user.name}` }),
    command: () => null,
    done: () => words.userDeleted(user.name),
  };
}

function quotaField(value: string): Field {
  return { kind: 'number', name: 'quota', label: words.quota, hint: words.quotaHint, value };
}

function countField(value: string): Field {
  const hint = words.quotaCountHint;
  return { kind: 'number', name: 'count', label: words.quotaCount, hint, value, required: true };
}

function quotaBytes(text: string): number | null {
  return text === '' ? null : Math.round(Number(text) * GIB);
}

export function createProject(): Operation {
  return {
    title: words.createProject,
    button: words.createProject,
    explanation: words.projectExplanation,
    fields: [
      { kind: 'text', name: 'name', label: words.projectName, required: true },
      { kind: 'text', name: 'prefix', label: words.prefix, hint: words.prefixHint, required: true },
      quotaField(''),
      countField(QUOTA_VOLUMES),
    ],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/projects',
      body: {
        name: values.text('name'),
        prefix: values.text('prefix'),
        quota_bytes: quotaBytes(values.text('quota')),
        quota_volumes: Number(values.text('count')),
      },
    }),
    command: () => null,
    done: (values) => words.projectCreated(values.text('name')),
  };
}

export function changeProject(project: Project): Operation {
  const quota = project.quota_bytes === null ? '' : String(project.quota_bytes / GIB);
  return {
    title: words.changeProjectTitle(project.name),
    button: words.change,
    fields: [quotaField(quota), countField(String(project.quota_volumes))],
    request: (values) => ({
      method: 'PATCH',
      path: path`/console/v1/projects/${project.name}`,
      ifMatch: project.etag,
      body: {
        ...(values.text('quota') === quota
          ? {}
          : { quota_bytes: quotaBytes(values.text('quota')) }),
        ...(values.text('count') === String(project.quota_volumes)
          ? {}
          : { quota_volumes: Number(values.text('count')) }),
      },
    }),
    command: () => null,
    done: () => words.projectChanged(project.name),
  };
}

export function deleteProject(project: Project): Operation {
  const quota = project.quota_bytes === null ? '' : exactBytes(project.quota_bytes);
  return {
    title: words.deleteProjectTitle(project.name),
    button: words.delete,
    fields: [],
    losses: [words.deleteProjectLoses(project.prefix, quota)],
    nameToType: project.name,
    request: () => ({ method: 'DELETE', path: path`/console/v1/projects/${project.name}` }),
    command: () => null,
    done: () => words.projectDeleted(project.name),
  };
}

/** A token has no more rights than who makes it. */
export function createToken(role: Role, projects: Project[]): Operation {
  return {
    title: words.createToken,
    button: words.createToken,
    explanation: words.tokenExplanation,
    fields: [
      { kind: 'text', name: 'name', label: words.tokenName, required: true },
      roleField('viewer', role),
      projectsField([], projects),
      {
        kind: 'number',
        name: 'days',
        label: words.days,
        hint: words.daysHint,
        value: '90',
        required: true,
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/tokens',
      body: {
        name: values.text('name'),
        role: values.text('role'),
        projects: values.many('projects'),
        expires_in_seconds: Math.round(Number(values.text('days')) * DAY_SECONDS),
      },
    }),
    command: () => null,
    done: (values) => words.tokenCreated(values.text('name')),
    secret: (answer) => (answer as { secret: string }).secret,
  };
}

export function deleteToken(token: Token): Operation {
  return {
    title: words.deleteTokenTitle(token.name),
    button: words.delete,
    fields: [],
    losses: [words.deleteTokenLoses(token.name)],
    nameToType: token.name,
    request: () => ({ method: 'DELETE', path: path`/console/v1/tokens/${token.id}` }),
    command: () => null,
    done: () => words.tokenDeleted(token.name),
  };
}

export function endSession(session: ListedSession): Operation {
  return {
    title: words.endSessionTitle(session.user),
    button: words.endSession,
    explanation: words.endSessionExplanation(session.address),
    fields: [],
    request: () => ({ method: 'DELETE', path: path`/console/v1/sessions/${session.id}` }),
    command: () => null,
    done: () => words.sessionEnded(session.user),
  };
}

export function changePassword(): Operation {
  return {
    title: words.changePassword,
    button: words.changePassword,
    explanation: words.changePasswordExplanation,
    fields: [
      {
        kind: 'password',
        name: 'current',
        label: words.currentPassword,
        required: true,
        autocomplete: 'current-password',
      },
      {
        kind: 'password',
        name: 'new',
        label: words.newPassword,
        hint: words.passwordHint,
        required: true,
        autocomplete: 'new-password',
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/password',
      body: { current: values.exactly('current'), new: values.exactly('new') },
    }),
    command: () => null,
    done: (_values, answer) => {
      const { sessions_ended, tokens } = answer as PasswordChanged;
      return words.passwordChanged(sessions_ended, tokens);
    },
  };
}

function ownPasswordField(): Field {
  return {
    kind: 'password',
    name: 'password',
    label: words.currentPassword,
    required: true,
    autocomplete: 'current-password',
  };
}

/** `begun` is told the secret, for the page to show. */
export function beginSecondFactor(begun: (secret: SecondFactorSecret) => void): Operation {
  return {
    title: factorWords.title,
    button: factorWords.enrol,
    explanation: factorWords.enrolExplanation,
    fields: [ownPasswordField()],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/second-factor',
      body: { password: values.exactly('password') },
    }),
    command: () => null,
    done: (_values, answer) => {
      begun(answer as SecondFactorSecret);
      return factorWords.begun;
    },
  };
}

export function disableSecondFactor(): Operation {
  return {
    title: factorWords.disableTitle,
    button: factorWords.disable,
    losses: [factorWords.disableLoses],
    fields: [
      ownPasswordField(),
      {
        kind: 'text',
        name: 'code',
        label: factorWords.code,
        hint: factorWords.codeHint,
        required: true,
        autocomplete: 'one-time-code',
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/console/v1/second-factor/disable',
      body: { password: values.exactly('password'), code: values.text('code') },
    }),
    command: () => null,
    done: () => factorWords.disabled,
  };
}

export function resetSecondFactor(user: User): Operation {
  return {
    title: factorWords.resetTitle(user.name),
    button: factorWords.reset,
    fields: [],
    losses: [factorWords.resetLoses(user.name)],
    nameToType: user.name,
    request: () => ({
      method: 'DELETE',
      path: path`/console/v1/users/${user.name}/second-factor`,
    }),
    command: () => null,
    done: () => factorWords.resetDone(user.name),
  };
}

/** Has all users turn two-factor login on, or ends that. */
export function requireSecondFactor(rules: Rules): Operation {
  const isRequired = rules.second_factor_required;
  return {
    title: isRequired ? factorWords.unrequireTitle : factorWords.require,
    button: isRequired ? factorWords.unrequire : factorWords.require,
    ...(isRequired
      ? { losses: [factorWords.unrequireLoses] }
      : { explanation: factorWords.requireExplanation }),
    fields: [],
    request: () => ({
      method: 'PATCH',
      path: '/console/v1/rules',
      ifMatch: rules.etag,
      body: { second_factor_required: !isRequired },
    }),
    command: () => null,
    done: () => (isRequired ? factorWords.unrequireDone : factorWords.requireDone),
  };
}
