/** The part of noVNC that is used; it comes without types. */
declare module '@novnc/novnc' {
  interface Events {
    connect: CustomEvent<Record<string, never>>;
    disconnect: CustomEvent<{ clean: boolean }>;
    credentialsrequired: CustomEvent<{ types: string[] }>;
    securityfailure: CustomEvent<{ status: number; reason?: string }>;
  }

  export default class RFB {
    constructor(target: HTMLElement, channel: WebSocket, options?: { shared?: boolean });
    scaleViewport: boolean;
    focus(options?: FocusOptions): void;
    disconnect(): void;
    sendCtrlAltDel(): void;
    addEventListener<Kind extends keyof Events>(
      kind: Kind,
      listener: (event: Events[Kind]) => void,
    ): void;
  }
}
