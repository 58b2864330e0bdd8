/** Texts of two-factor login. */
import { many } from './many';

export const secondFactor = {
  title: 'Two-factor login',
  explanation:
    'With two-factor login, a login requires the password and a code of an authenticator app (TOTP). API tokens need no code.',
  isOff: 'Two-factor login is off.',
  isOn: (left: number): string =>
    `Two-factor login is on. Left: ${many(left, 'recovery code', 'recovery codes')}.`,
  ofProvider: 'You log in by single sign-on; its provider decides about a second factor.',
  required: 'Two-factor login is required',
  requiredText: 'All users of this console must use two-factor login. Turn yours on to continue.',
  rule: 'Two-factor login for all users',
  ruleIsOn: (without: number): string =>
    without === 0
      ? 'Required. All users have it on.'
      : `Required. ${many(without, 'user has', 'users have')} not turned it on yet.`,
  ruleIsOff: (without: number): string =>
    `Not required. ${without === 0 ? 'All users have it on.' : `${many(without, 'user logs', 'users log')} in without it.`}`,
  require: 'Require two-factor login',
  requireExplanation:
    'Users without it can then only turn it on, also in existing sessions. You must have it on yourself. Tokens and users of single sign-on are not affected.',
  requireDone: 'Two-factor login is now required of all users.',
  unrequire: 'Make it optional',
  unrequireTitle: 'Make two-factor login optional',
  unrequireLoses:
    'The requirement. Users who turn two-factor login off then log in by password alone.',
  unrequireDone: 'Two-factor login is optional now.',
  enrol: 'Turn on',
  enrolExplanation: 'Confirm your password. It takes effect with the first code.',
  begun: 'Scan the QR code and enter the code of the app.',
  scan: 'Scan this with an authenticator app, or enter the secret there. Then enter the code of the app.',
  qrCode: 'QR code of the secret',
  secret: 'Secret',
  uri: 'Address',
  firstCode: 'Code of the app',
  confirm: 'Confirm',
  enabled: (sessions: number): string =>
    `Two-factor login is on. Ended: ${many(sessions, 'other session', 'other sessions')}.`,
  recoveryCodes: 'Recovery codes',
  recoveryExplanation: 'Each replaces one code if the app is lost. They are shown only once.',
  kept: 'I have stored them',
  disable: 'Turn off',
  disableTitle: 'Turn two-factor login off',
  disableLoses: 'The secret in your app, and all recovery codes.',
  disabled: 'Two-factor login is off.',
  code: 'Code',
  codeHint: 'The code of the app, or a recovery code.',
  column: 'Two-factor login',
  on: 'on',
  off: 'off',
  reset: 'Reset two-factor login',
  resetTitle: (name: string): string => `Reset two-factor login of ${name}`,
  resetLoses: (name: string): string =>
    `The second factor and all sessions of ${name}, who then logs in by password alone.`,
  resetDone: (name: string): string => `Two-factor login of ${name} was reset.`,
};
