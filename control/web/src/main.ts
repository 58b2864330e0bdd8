import { mount } from 'svelte';
import './style.css';
import Page from './Page.svelte';

const target = document.getElementById('page');
if (target === null) throw new Error('index.html has an element for the page');
mount(Page, { target });
