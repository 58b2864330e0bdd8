/** Texts of two-factor login. */
import { many } from './many';

export const secondFactor = {
  title: 'Two-factor login',
  explanation:
    'A login then takes a code of an authenticator app besides the password. Tokens of scripts need none.',
  isOff: 'It is off.',
  isOn: (left: number): string =>
    `It is on. Left: ${many(left, 'recovery code', 'recovery codes')}.`,
  ofProvider: 'The provider that logs you in asks for a second factor, if it likes.',
  required: 'Two-factor login is required',
  requiredText:
    'All users of this console log in with a code besides the password. Turn yours on to go on.',
  rule: 'Two-factor login of all users',
  ruleIsOn: (without: number): string =>
    without === 0
      ? 'It is required, and all users have it.'
      : `It is required: ${many(without, 'user has', 'users have')} to turn it on first.`,
  ruleIsOff: (without: number): string =>
    `It is not required. ${without === 0 ? 'All users have it.' : `${many(without, 'user does', 'users do')} without.`}`,
  require: 'Require two-factor login',
  requireExplanation:
    'Who has none can do nothing but turn it on, from their next request on. You must have it yourself. Tokens and users of an identity provider are not affected.',
  requireDone: 'Two-factor login is required of all users.',
  unrequire: 'Require it no more',
  unrequireTitle: 'Require two-factor login no more',
  unrequireLoses:
    'The rule. The password alone then logs in who turns two-factor login off, and who never had it.',
  unrequireDone: 'Two-factor login is not required any more.',
  enrol: 'Turn on',
  enrolExplanation: 'The password shows that it is you. Nothing changes before the first code.',
  begun: 'Scan the code, and type what the app shows.',
  scan: 'Scan this with an authenticator app, or type the secret. Then type the code that the app shows.',
  qrCode: 'QR code of the secret',
  secret: 'Secret',
  uri: 'Address',
  firstCode: 'Code that the app shows',
  confirm: 'Confirm',
  enabled: (sessions: number): string =>
    `Two-factor login is on. Ended: ${many(sessions, 'other session', 'other sessions')}.`,
  recoveryCodes: 'Recovery codes',
  recoveryExplanation:
    'Each logs in once in the place of a code, for when the app is lost. They are shown this once only.',
  kept: 'They are kept',
  disable: 'Turn off',
  disableTitle: 'Turn two-factor login off',
  disableLoses: 'The secret in your app, and all recovery codes.',
  disabled: 'Two-factor login is off.',
  code: 'Code',
  codeHint: 'Of the app, or a recovery code.',
  column: 'Two-factor login',
  on: 'on',
  off: 'off',
  reset: 'Reset two-factor login',
  resetTitle: (name: string): string => `Reset two-factor login of ${name}`,
  resetLoses: (name: string): string =>
    `The second factor of ${name} and all sessions. The password alone logs in then.`,
  resetDone: (name: string): string => `${name} logs in without a code now.`,
};
